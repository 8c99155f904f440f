// SPDX-License-Identifier: Apache-2.0
// Writes the journal of one executor (journal.h). The step loop's thread hands turns over and never
// waits; a thread `inflight-record` writes them, 20 ms later at most. Turns for which there is no
// room are left out and counted in the journal. FILE of full size becomes FILE.1, in whose place it
// comes, and so does what another run left there.
//
// A file that cannot be written, for want of memory too, ends the journal with an error in the log,
// and nothing else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "executor/loop_watcher.h"
#include "flight_recorder/header.h"

namespace inflight::flight_recorder {

struct RecordOptions {
  std::filesystem::path file;
  int64_t file_bytes = int64_t{64} << 20;  // at most, of FILE and of FILE.1
  bool keeps_prompts = false;              // ids of clients; without them hashes alone
};

// Threads: of the step loop's thread, but for its end, which writes what is left.
// `header` has all but version, run, part, time and has_prompts. Errors name the file:
// kAlreadyExists where another model records there, kInvalidArgument where FILE is no journal.
Result<std::unique_ptr<executor::LoopWatcher>> Record(const RecordOptions& options, Header header);

}  // namespace inflight::flight_recorder
