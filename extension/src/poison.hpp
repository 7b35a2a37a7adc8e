// The item that a worker is running, written where the death of its process does not erase it.
//
// Each worker maps a small file and names there the item that it runs: a plain memory write, no
// system call, nothing that a commit waits for. The name goes when the item is done, and when
// somebody tells the process to quit: a shutdown, or a crash elsewhere in the server. So a name
// that a new process of the same number finds is of an item whose handler ended the last one (a
// segmentation fault, an exit(), the kernel's OOM killer). That attempt is charged to the item, and
// after three such the saga is parked, whatever its policy allows.
//
// The files are in pg_stat_tmp, which every data directory has, which survives a crash, and which
// base backups leave out: a copy of the server must not charge what happened to the original.
#pragma once
#include "src/item.hpp"

namespace stacksaga {

/// So many handlers may end their process before the saga is parked.
inline constexpr int32 deaths_max = 3;

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

/// Names the item that runs from now on, and no item.
void name_item(const DueItem &item);
void name_nothing();

/// Whether there is a death to be charged.
bool has_last_words();

/// Charges it, once: a failure of that attempt, unless somebody else has dealt with the item since.
/// An item whose saga is locked is left for the next call. Inside with_spi, in a transaction of its
/// own; `forget_last_words` after the commit when it returned true.
bool charge_last_words(std::string_view worker);
void forget_last_words();

} // namespace stacksaga
