#include "pg/json_text.hpp"

namespace stacksaga::pg {

namespace {

// The header of a stored numeric, which numeric.c keeps to itself. It is part of the format on
// disk, the same in all versions.
constexpr uint16 flag_mask = 0xC000, flag_negative = 0x4000, flag_short = 0x8000;
constexpr uint16 short_negative = 0x2000, short_scale_mask = 0x1F80, short_scale_shift = 7;
constexpr uint16 short_weight_sign = 0x0040, short_weight_mask = 0x003F, long_scale_mask = 0x3FFF;
constexpr int digits_in_one = 4; // a stored digit is one of base 10,000

// A number takes four bytes of an array or object, and with one stored digit eight more.
constexpr uint64 number_bytes_min = 12, number_text_max = 131'072 + 16'383 + 3;
constexpr uint64 character_text_max = 6; // a control character as \u0001

struct NumberHeader {
    bool is_negative;
    int scale;  ///< decimal digits behind the point
    int weight; ///< stored digits before the point, less one
    int digits; ///< stored ones
    uint16 first;
};

uint16 read_word(const char *bytes, size_t index) {
    uint16 word;
    memcpy(&word, bytes + index * sizeof(word), sizeof(word));
    return word;
}

NumberHeader header_of(const void *numeric) {
    const char *bytes = VARDATA_ANY(numeric);
    const size_t words = VARSIZE_ANY_EXHDR(numeric) / sizeof(uint16);
    const uint16 header = read_word(bytes, 0);
    const bool is_short = (header & flag_short) != 0;
    const size_t from = is_short ? 1 : 2;
    NumberHeader h{};
    if (is_short) {
        h.is_negative = (header & short_negative) != 0;
        h.scale = (header & short_scale_mask) >> short_scale_shift;
        h.weight = header & short_weight_mask;
        if ((header & short_weight_sign) != 0)
            h.weight -= short_weight_mask + 1;
    } else {
        h.is_negative = (header & flag_mask) == flag_negative;
        h.scale = header & long_scale_mask;
        h.weight = static_cast<int16>(read_word(bytes, 1));
    }
    h.digits = static_cast<int>(words - from);
    h.first = h.digits > 0 ? read_word(bytes, from) : uint16{0};
    return h;
}

} // namespace

uint64 number_text_bytes(const void *numeric) {
    const NumberHeader h = header_of(numeric);
    int before = 1; // "0"
    if (h.digits > 0 && h.weight >= 0)
        before = h.weight * digits_in_one + (h.first >= 1000  ? 4
                                             : h.first >= 100 ? 3
                                             : h.first >= 10  ? 2
                                                              : 1);
    return static_cast<uint64>(before + (h.scale > 0 ? h.scale + 1 : 0) + (h.is_negative ? 1 : 0));
}

namespace {

uint64 string_text_bytes(const char *bytes, uint32 size) {
    uint64 text = uint64{size} + 2;
    for (uint32 i = 0; i < size; ++i) {
        const char c = bytes[i];
        if (c == '"' || c == '\\' || (c >= '\b' && c <= '\r' && c != '\v'))
            text += 1;
        else if (static_cast<unsigned char>(c) < ' ')
            text += character_text_max - 1;
    }
    return text;
}

/// Strings count what their text has at most where `is_exact` is false.
struct Walk {
    bool is_exact;
    uint64 limit; ///< where the walk may end
    uint64 bytes;
};

void add_container(Walk &walk, const JsonbContainer *container);

void add_value(Walk &walk, JEntry entry, const char *base, uint32 offset, uint32 size) {
    if (JBE_ISSTRING(entry))
        walk.bytes += walk.is_exact ? string_text_bytes(base + offset, size)
                                    : uint64{size} * character_text_max + 2;
    else if (JBE_ISNUMERIC(entry))
        walk.bytes += number_text_bytes(base + INTALIGN(offset));
    else if (JBE_ISCONTAINER(entry))
        add_container(walk, reinterpret_cast<const JsonbContainer *>(base + INTALIGN(offset)));
    else
        walk.bytes += JBE_ISBOOL_FALSE(entry) ? 5 : 4;
}

/// An entry holds the length of its value, and each 32nd one the offset of its end instead.
void add_container(Walk &walk, const JsonbContainer *container) {
    check_stack_depth();
    const uint32 count = JsonContainerSize(container);
    const bool is_object = JsonContainerIsObject(container);
    const uint32 entries = is_object ? count * 2 : count;
    const char *base = reinterpret_cast<const char *>(&container->children[entries]);
    if (!JsonContainerIsScalar(container)) // brackets, ", " between values, ": " behind keys
        walk.bytes += 2 + (count > 0 ? 2 * uint64{count - 1} : 0) + (is_object ? 2 * count : 0);
    uint32 offset = 0;
    for (uint32 i = 0; i < entries && walk.bytes <= walk.limit; ++i) {
        const JEntry entry = container->children[i];
        const uint32 field = JBE_OFFLENFLD(entry);
        const uint32 end = JBE_HAS_OFF(entry) ? field : offset + field;
        add_value(walk, entry, base, offset, end - offset);
        offset = end;
    }
}

} // namespace

uint64 json_text_bytes(const Jsonb *value) {
    Walk walk{.is_exact = true, .limit = PG_UINT64_MAX, .bytes = 0};
    add_container(walk, &value->root);
    return walk.bytes;
}

uint64 json_text_at_most(const Jsonb *value) {
    Walk walk{.is_exact = false, .limit = PG_UINT64_MAX, .bytes = 0};
    add_container(walk, &value->root);
    return walk.bytes;
}

bool json_text_fits(const Jsonb *value, uint64 limit) {
    const uint64 size = VARSIZE(value);
    if ((size / number_bytes_min + 1) * number_text_max + size * character_text_max <= limit)
        return true;
    Walk walk{.is_exact = false, .limit = limit, .bytes = 0};
    add_container(walk, &value->root);
    if (walk.bytes > limit) {
        walk = {.is_exact = true, .limit = limit, .bytes = 0};
        add_container(walk, &value->root);
    }
    return walk.bytes <= limit;
}

} // namespace stacksaga::pg
