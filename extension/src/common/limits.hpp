// Limits on what callers pass, the errors when they are passed, and values quoted in messages.
#pragma once
#include "pg/statement/function.hpp"

namespace stacksaga {

inline constexpr int name_bytes_max = 255;        ///< sagas, steps, workers
inline constexpr int key_bytes_max = 255;         ///< keys of sagas and of the dedupe methods
inline constexpr int queue_bytes_max = 63;        ///< queues
inline constexpr int error_bytes_max = 64 * 1024; ///< kept of an error message
inline constexpr int reason_bytes_max = 4096;     ///< why somebody acted
inline constexpr int quoted_bytes_max = 80;       ///< of a caller's text inside a message

/// `text` for a message: cut to quoted_bytes_max bytes at a character's border, then printable().
const char *clip(std::string_view text);

/// `text` with its invisible characters escaped (core/common/invisible.hpp), as it is printed for
/// people.
const char *printable(std::string_view text);

/// SG400 when a SQL_ASCII database is given a text that is not UTF-8, which nobody could read.
void check_encoding(std::string_view text, const char *argument);

/// A uuid for a message.
const char *uuid_text(const pg_uuid_t &id);

/// Microseconds for a message, as PostgreSQL writes an interval of days and hours.
const char *interval_text(int64 microseconds);

/// How long services remember a key: stacksaga.dedupe_retention, in microseconds.
int64 dedupe_retention_us();

/// SG404: there is no saga with this id.
[[noreturn]] void raise_unknown_saga(const pg_uuid_t &id);

/// SG400 unless `text` is 1 to `bytes_max` bytes long; also check_encoding().
void check_length(std::string_view text, const char *argument, int bytes_max);

/// Whether `text` holds what a terminal would obey: C0, DEL, and C1 as UTF-8 writes it. Names are
/// shown to people, by programs that print them as they are.
bool has_control_character(std::string_view text);

/// As check_length(), and SG400 when `name` holds a control character.
void check_name(std::string_view name, const char *argument, int bytes_max = name_bytes_max);

/// Whether a jsonb datum is at most stacksaga.max_payload bytes large (uncompressed), and its text
/// at most twice as long: 1e131071 has ten bytes, and a text of 131,072.
bool payload_fits(Datum value);

/// SG413 when a jsonb datum does not fit.
void check_payload(Datum value, const char *argument);

/// SG413 when the text of a jsonb datum is longer than twice `size_max` bytes.
void check_text_of_json(Datum value, const char *argument, int size_max);

/// The same for what a definition is given as, all of which is compared as text. Whatever the
/// setting is, it may be as large as the default of that.
void check_definition_text(Datum value, const char *argument);

/// SG413 when what is said about a failure is longer than error_bytes_max; also check_encoding().
void check_error_text(std::string_view text, const char *argument);

/// Argument `i`, named spread, in microseconds. SG400 when it is NULL, not finite, negative, or
/// longer than core::spread_max.
int64 spread_argument(const pg::Arguments &arguments, int i);

/// Argument `i`, named retry_after, in microseconds; nothing when it is NULL. SG400 when it is
/// longer than stacksaga.dedupe_retention: the key would be forgotten before the next attempt.
std::optional<int64> retry_after_argument(const pg::Arguments &arguments, int i);

/// The first element of a policy's retry_on or never_on, a text[], that is neither an SQLSTATE nor
/// a class of them, for a message; nothing when all are.
const char *find_bad_state(Datum list);

} // namespace stacksaga
