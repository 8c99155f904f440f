// SPDX-License-Identifier: Apache-2.0
#include "serving/conformance/background.h"

#include <atomic>
#include <thread>
#include <utility>

#include "base/thread_name.h"

namespace inflight::serving {

struct Background::Piece {
  std::shared_ptr<std::atomic<bool>> is_done = std::make_shared<std::atomic<bool>>(false);
  std::thread thread;

  ~Piece() {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else if (thread.joinable()) {
      thread.join();
    }
  }
};

Background::Background() = default;
Background::~Background() = default;

void Background::Run(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  pieces_.remove_if([](const auto& piece) { return piece->is_done->load(); });
  auto piece = std::make_unique<Piece>();
  piece->thread = std::thread([work = std::move(work), is_done = piece->is_done]() mutable {
    NameThisThread("background");
    work();
    work = nullptr;  // what it held may be the last use of a model
    is_done->store(true);
  });
  pieces_.push_back(std::move(piece));
}

}  // namespace inflight::serving
