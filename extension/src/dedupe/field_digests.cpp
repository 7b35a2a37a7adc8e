#include "core/json_fields.hpp"
#include "core/murmur3.hpp"

#include "src/dedupe/field_digests.hpp"

#include "src/common/limits.hpp"

namespace stacksaga {

namespace {

constexpr size_t name_bytes_kept = 63;
constexpr size_t digest_bytes = 4;
constexpr int names_shown_max = 10;

/// A field's name as it is kept: cut between characters.
std::string_view kept_name(std::string_view name) {
    if (name.size() <= name_bytes_kept)
        return name;
    int length = pg_encoding_mbcliplen(PG_UTF8, name.data(), static_cast<int>(name.size()),
                                       static_cast<int>(name_bytes_kept));
    return {name.data(), static_cast<size_t>(length)};
}

struct FieldDigest {
    std::string_view name;
    uint32 digest;
    bool seen; ///< in the other request
};

/// Digests as they were stored.
struct StoredDigests {
    std::span<FieldDigest> fields;
    bool complete;
};

StoredDigests parse(Datum digests) {
    bytea *packed = DatumGetByteaPP(digests);
    std::string_view rest{VARDATA_ANY(packed), static_cast<size_t>(VARSIZE_ANY_EXHDR(packed))};
    if (rest.empty())
        return {{}, false};
    const bool complete = rest.front() == 0;
    rest.remove_prefix(1);
    auto *list = static_cast<FieldDigest *>(palloc(sizeof(FieldDigest) * (rest.size() + 1)));
    size_t count = 0;
    while (!rest.empty()) {
        const auto length = static_cast<unsigned char>(rest.front());
        if (rest.size() < 1 + length + digest_bytes)
            break;
        uint32 digest;
        memcpy(&digest, rest.data() + 1 + length, digest_bytes);
        list[count++] = {{rest.data() + 1, length}, digest, false};
        rest.remove_prefix(1 + length + digest_bytes);
    }
    return {{list, count}, complete};
}

/// Names collected for a message; only the first few are shown.
class Names {
public:
    Names() { initStringInfo(&text_); }

    void add(std::string_view name_utf8) {
        if (++count_ > names_shown_max)
            return;
        const char *name = pg_any_to_server(pnstrdup(name_utf8.data(), name_utf8.size()),
                                            static_cast<int>(name_utf8.size()), PG_UTF8);
        appendStringInfo(&text_, "%s\"%s\"", count_ == 1 ? "" : ", ", clip(name));
    }
    bool empty() const { return count_ == 0; }

    /// Appends "LABEL: names" to a sentence that has begun.
    void append_to(StringInfo sentence, const char *label) const {
        if (empty())
            return;
        appendStringInfo(sentence, "%s%s: %s", sentence->len == 0 ? "" : "; ", label, text_.data);
        if (count_ > names_shown_max)
            appendStringInfo(sentence, " and %d more", count_ - names_shown_max);
    }

private:
    StringInfoData text_;
    int count_ = 0;
};

} // namespace

std::optional<Datum> field_digests_of(std::string_view canonical) {
    if (!core::is_json_object(canonical))
        return std::nullopt;
    auto *result = static_cast<bytea *>(palloc(VARHDRSZ + field_digests_bytes_max));
    char *out = VARDATA(result), *end = out + field_digests_bytes_max;
    char *flag = out++;
    *flag = 0;
    core::for_each_json_field(canonical, [&](std::string_view field, std::string_view value) {
        std::string_view name = kept_name(field);
        if (*flag != 0 || out + 1 + name.size() + digest_bytes > end) {
            *flag = 1;
            return;
        }
        *out++ = static_cast<char>(name.size());
        memcpy(out, name.data(), name.size());
        const uint32 digest = core::murmur3_x86_32(value);
        memcpy(out + name.size(), &digest, digest_bytes);
        out += name.size() + digest_bytes;
    });
    SET_VARSIZE(result, out - reinterpret_cast<char *>(result));
    return PointerGetDatum(result);
}

const char *describe_difference(std::optional<Datum> digests,
                                std::optional<std::string_view> canonical) {
    if (!digests || !canonical || !core::is_json_object(*canonical))
        return "At least one of the two requests is not a JSON object";
    StoredDigests stored = parse(*digests);
    Names changed, added, missing;
    core::for_each_json_field(*canonical, [&](std::string_view field, std::string_view value) {
        std::string_view name = kept_name(field);
        for (FieldDigest &s : stored.fields)
            if (!s.seen && s.name == name) {
                s.seen = true;
                if (s.digest != core::murmur3_x86_32(value))
                    changed.add(name);
                return;
            }
        if (stored.complete)
            added.add(name);
    });
    for (const FieldDigest &s : stored.fields)
        if (!s.seen)
            missing.add(s.name);
    StringInfoData sentence;
    initStringInfo(&sentence);
    changed.append_to(&sentence, "Fields that differ");
    added.append_to(&sentence, "fields that it did not have");
    missing.append_to(&sentence, "fields that are missing");
    if (sentence.len == 0)
        return "They differ in fields that are not kept one by one";
    sentence.data[0] = static_cast<char>(pg_toupper(static_cast<unsigned char>(sentence.data[0])));
    return sentence.data;
}

} // namespace stacksaga
