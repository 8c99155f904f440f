// SPDX-License-Identifier: Apache-2.0
#include "serving/core/request.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace inflight::serving {

void CancelToken::Cancel() {
  std::function<void()> listener;
  {
    std::lock_guard lock(mutex_);
    if (cancelled_.exchange(true, std::memory_order_acq_rel)) return;
    listener = std::exchange(listener_, nullptr);
    if (listener) running_in_ = std::this_thread::get_id();
  }
  if (listener) RunListener(std::move(listener));
}

void CancelToken::SetListener(std::function<void()> listener) {
  {
    std::unique_lock lock(mutex_);
    // Wait for a listener that runs on another thread; the one that calls us may go on.
    idle_.wait(lock, [&] {
      return running_in_ == std::thread::id() || running_in_ == std::this_thread::get_id();
    });
    if (!cancelled() || !listener) {
      listener_ = std::move(listener);
      return;
    }
    running_in_ = std::this_thread::get_id();
  }
  RunListener(std::move(listener));
}

void CancelToken::RunListener(std::function<void()> listener) {
  // Whatever the listener throws, such as bad_alloc: others may wait for its end.
  const std::unique_ptr<CancelToken, void (*)(CancelToken*)> done(this, [](CancelToken* token) {
    {
      const std::lock_guard lock(token->mutex_);
      token->running_in_ = {};
    }
    token->idle_.notify_all();
  });
  const auto runs = std::move(listener);  // goes, with what it captured, before we call it done
  runs();
}

void HoldToken::Set(bool is_held, uint64_t change) {
  const std::lock_guard lock(mutex_);
  if (change <= newest_) return;
  newest_ = change;
  if (std::exchange(is_held_, is_held) == is_held) return;
  for (const auto& listener : listeners_) listener(is_held);
}

void HoldToken::AddListener(std::function<void(bool)> listener) {
  const std::lock_guard lock(mutex_);
  listeners_.push_back(std::move(listener));
  if (is_held_) listeners_.back()(true);
}

Status SetSequenceName(std::string name, Request& request) {
  constexpr size_t kMaxLength = 128;
  if (name.size() > kMaxLength) {
    return Unimplemented("string correlation ID cannot be longer than 128 characters");
  }
  request.sequence_name = std::move(name);
  return Status::Ok();
}

const Tensor* Request::FindInput(std::string_view name) const {
  for (const Tensor& input : inputs) {
    if (input.name == name) return &input;
  }
  return nullptr;
}

bool Request::WantsOutput(std::string_view name) const {
  return requested_outputs.empty() || std::find(requested_outputs.begin(), requested_outputs.end(),
                                                name) != requested_outputs.end();
}

int64_t Request::batch_size(int max_batch_size) const {
  if (max_batch_size < 1 || inputs.empty() || inputs.front().shape.empty()) return 1;
  return inputs.front().shape.front();
}

const std::string* ReceiptOf(const Response& response) {
  const auto found = response.parameters.find(kReceiptParameter);
  return found == response.parameters.end() ? nullptr : std::get_if<std::string>(&found->second);
}

size_t BytesOfParameters(const Parameters& parameters) {
  constexpr size_t kOfEach = 128;  // about what a map takes beside name and text
  size_t bytes = 0;
  for (const auto& [name, value] : parameters) {
    const auto* text = std::get_if<std::string>(&value);
    bytes += kOfEach + name.size() + (text == nullptr ? 0 : text->size());
  }
  return bytes;
}

}  // namespace inflight::serving
