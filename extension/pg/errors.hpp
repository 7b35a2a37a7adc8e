// The SQLSTATEs of stacksaga. The last three characters are what an HTTP service answers;
// class SG fails again when repeated, class SR may be retried.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

constexpr int sqlstate(const char (&code)[6]) {
    return MAKE_SQLSTATE(code[0], code[1], code[2], code[3], code[4]);
}

inline constexpr int sg400 = sqlstate("SG400"); ///< invalid argument, key or definition
inline constexpr int sg403 = sqlstate("SG403"); ///< the role lacks a level
inline constexpr int sg404 = sqlstate("SG404"); ///< no such saga, step, node, ring
inline constexpr int sg409 = sqlstate("SG409"); ///< not allowed in this state
inline constexpr int sg412 = sqlstate("SG412"); ///< fenced: lease lost, older epoch, superseded
inline constexpr int sg413 = sqlstate("SG413"); ///< payload over stacksaga.max_payload
inline constexpr int sg416 = sqlstate("SG416"); ///< ranges that do not tile the ring
inline constexpr int sg422 = sqlstate("SG422"); ///< same key, other content
inline constexpr int sg424 = sqlstate("SG424"); ///< raised by user code: compensate
inline constexpr int sr409 = sqlstate("SR409"); ///< the same operation is in progress elsewhere
inline constexpr int sr425 = sqlstate("SR425"); ///< too early
inline constexpr int sr503 = sqlstate("SR503"); ///< raised by user code: try again later
inline constexpr int sr504 = sqlstate("SR504"); ///< raised by user code: outcome unknown

} // namespace stacksaga::pg
