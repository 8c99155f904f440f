// SPDX-License-Identifier: Apache-2.0
// The files that traces go to: `<path>`, an array that is complete when this goes, and
// `<path>.<i>`, complete when they are written.
//
// Threads: all methods are thread-safe; a thread of its own writes, so that none that answers
// requests waits for a disk.
// Errors: are logged; what cannot be written is lost.
#pragma once

#include <memory>
#include <string>

#include "base/descriptor.h"
#include "base/worker_pool.h"
#include "inflight/status.h"

namespace inflight::serving {

class TraceFile {
 public:
  explicit TraceFile(std::string path);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // `elements` of the array, between commas.
  void Append(std::string elements);
  void WriteNumbered(std::string elements);

 private:
  static void Note(const Status& written);

  const std::string path_;
  Descriptor file_;  // the writing thread's, as is num_files_
  int num_files_ = 0;
  std::unique_ptr<WorkerPool> writer_;
};

}  // namespace inflight::serving
