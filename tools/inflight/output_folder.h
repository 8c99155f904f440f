// SPDX-License-Identifier: Apache-2.0
// The folder that `convert` and `build` write: it appears under its name when it is complete, and
// what is there already is not written over unless that is asked for.
#pragma once

#include <signal.h>

#include <filesystem>
#include <memory>
#include <thread>

#include "inflight/status.h"

namespace inflight::tool {

// A temporary folder beside the one that is meant. Destroyed before Publish, or at SIGINT, SIGTERM
// or SIGHUP, which end the process as they would, it leaves nothing behind. Those of them that the
// process was started to ignore it still ignores.
//
// Threads: made before others are started, which have to inherit its mask of signals; one at a time
// per process.
class OutputFolder {
 public:
  // kAlreadyExists: `given` has a checkpoint or an engine, and `may_replace` is false. What else is
  // in it stays.
  static Result<std::unique_ptr<OutputFolder>> Create(const std::filesystem::path& given,
                                                      bool may_replace);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  const std::filesystem::path& temporary() const { return temporary_; }  // where to write

  // Gives the folder its name. Where that is a folder already, the files go to it one by one,
  // config.json last, without which it is neither a checkpoint nor an engine.
  Status Publish();

 private:
  OutputFolder(std::filesystem::path path, bool may_replace);
  void WatchSignals(const std::stop_token& stop) const;
  void Remove() const;
  Status Merge() const;

  const std::filesystem::path path_;
  const bool may_replace_;
  std::filesystem::path temporary_;
  std::filesystem::path made_parent_;  // the first that was not there; empty: all were
  sigset_t former_mask_{};
  std::jthread watch_;
};

}  // namespace inflight::tool
