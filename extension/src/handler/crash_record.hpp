// What a worker is running, written where the death of its process does not erase it.
//
// Each worker maps a small file and names there the item, the message or the batch of messages that
// it runs: a plain memory write, no system call, nothing that a commit waits for. The name goes
// when that is done, and when somebody tells the process to quit: a shutdown, or a crash elsewhere
// in the server. So a name that a new process of the same number finds is of a handler that ended
// the last one (a segmentation fault, an exit(), the kernel's OOM killer). That attempt is charged:
// after three such a saga is parked, and a message has failed for good, whatever the policy allows.
//
// The files are in pg_stat_tmp, which every data directory has, which survives a crash, and which
// base backups leave out: a copy of the server must not charge what happened to the original.
#pragma once
#include "src/outbox/outbox.hpp"
#include "src/saga/work_item.hpp"

namespace stacksaga {

/// So often may a handler end its process before it is not tried again.
inline constexpr int32 deaths_max = 3;
inline constexpr std::string_view death_error = "the handler ended its process";

/// A message that is handed over alone.
struct NamedMessage {
    int32 subscription_id;
    int16 partition;
    bool is_aside;
    bool is_fallback; ///< it is the fallback that runs
    int32 attempt;
    int64 token;
    int64 tick;
    int64 number;
    core::LogPosition end; ///< behind it, of one of the log
};

/// A batch of messages: how far it reaches in each partition.
struct NamedBatch {
    struct Part {
        bool is_used;
        core::LogPosition from;
        core::LogPosition until;
    };
    int32 subscription_id;
    std::array<Part, log_partitions> parts;
};

/// Takes the signals that tell this process to quit: they erase the name first. Before signals are
/// unblocked.
void erase_name_on_signals();

/// Opens the file of worker `number` of this database, which this process holds, and keeps what its
/// predecessor left there. A file that cannot be had is told to the server's log; the worker works
/// all the same. Its orderly exit removes the file.
void open_name_file(int32 number);

/// Leaves the file to whoever has the number now.
void abandon_name_file();

/// Removes the files of databases that are gone. Inside a transaction.
void sweep_name_files();

/// Names what runs from now on, and nothing.
void name_item(const DueItem &item);
void name_message(const NamedMessage &message);
void name_batch(const NamedBatch &batch);
void name_nothing();

/// Whether this worker began after one that had left a name: what it names next should survive it.
bool has_followed_death();

/// Whether there is a death to be charged.
bool has_last_words();

/// Charges it, once: a failure of that attempt, unless somebody else has dealt with it since. What
/// is locked is left for the next call. Inside with_spi, in a transaction of its
/// own; `forget_last_words` after the commit when it returned true.
bool charge_last_words(std::string_view worker);
void forget_last_words();

} // namespace stacksaga
