// SPDX-License-Identifier: Apache-2.0
// Work of an Executable that goes on after Execute returned, each piece on a thread of its own.
//
// Threads: Run is thread-safe. The destructor waits for what runs, but for the piece that it is
// called from: the last response of a request may let go of its model.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>

namespace inflight::serving {

class Background {
 public:
  Background();
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Throws where there is no thread to be had; then `work` does not run.
  void Run(std::function<void()> work);

 private:
  struct Piece;

  std::mutex mutex_;
  std::list<std::unique_ptr<Piece>> pieces_;
};

}  // namespace inflight::serving
