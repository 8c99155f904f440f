// SPDX-License-Identifier: Apache-2.0
#include "kv_events/publisher.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/thread_name.h"
#include "kv_events/event_queue.h"
#include "kv_events/zmq_library.h"

namespace inflight::kv_events {
namespace {

constexpr int kMaxMessages = 10'000;  // that wait for one subscriber; later ones pass it by
constexpr int kMaxBufferSteps = 1'000'000;
constexpr size_t kMaxBufferBytes = size_t{256} << 20;
// Of a replay, numbers no message; its body is empty.
constexpr uint64_t kEndOfReplay = ~uint64_t{0};

std::array<unsigned char, 8> BigEndian(uint64_t value) {
  std::array<unsigned char, 8> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(value >> (56 - 8 * i));
  return bytes;
}

uint64_t FromBigEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// A context and its sockets, used by one thread at a time.
class Sockets {
 public:
  static Result<std::unique_ptr<Sockets>> Bind(const KvEventsOptions& options) {
    ASSIGN_OR_RETURN(const ZmqCalls* zmq, LoadZmq());
    auto sockets = std::make_unique<Sockets>(*zmq);
    ASSIGN_OR_RETURN(sockets->pub_, sockets->Bind(ZMQ_PUB, "kv_events_endpoint", options.endpoint));
    if (!options.replay_endpoint.empty()) {
      ASSIGN_OR_RETURN(sockets->replay_, sockets->Bind(ZMQ_ROUTER, "kv_events_replay_endpoint",
                                                       options.replay_endpoint));
    }
    return sockets;
  }

  explicit Sockets(const ZmqCalls& zmq) : zmq_(zmq), context_(zmq.ctx_new()) {}
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;
  ~Sockets() {
    for (void* socket : {pub_, replay_})
      if (socket != nullptr) zmq_.close(socket);
    if (context_ != nullptr) zmq_.ctx_term(context_);
  }

  void Publish(std::string_view topic, uint64_t number, std::string_view batch) {
    const auto bytes = BigEndian(number);
    Send(pub_, topic, ZMQ_SNDMORE);
    Send(pub_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, ZMQ_SNDMORE);
    Send(pub_, batch, 0);
  }

  // Waits until `wakeup` can be read or somebody asks for a replay. True: somebody does.
  bool Wait(int wakeup) {
    std::array<zmq_pollitem_t, 2> items{};
    items[0].fd = wakeup;
    items[0].events = ZMQ_POLLIN;
    items[1].socket = replay_;
    items[1].events = ZMQ_POLLIN;
    zmq_.poll(items.data(), replay_ == nullptr ? 1 : 2, -1);
    return (items[1].revents & ZMQ_POLLIN) != 0;
  }

  // The frames of a message to the replay socket; longer frames are cut.
  std::vector<std::string> Receive() {
    std::vector<std::string> frames;
    constexpr size_t kMaxFrames = 4;
    constexpr size_t kMaxFrame = 256;
    for (int more = 1; more != 0;) {
      std::array<char, kMaxFrame> bytes{};
      const int size = zmq_.recv(replay_, bytes.data(), bytes.size(), ZMQ_DONTWAIT);
      if (size < 0) return {};
      if (frames.size() <= kMaxFrames)
        frames.emplace_back(bytes.data(), std::min<size_t>(static_cast<size_t>(size), kMaxFrame));
      size_t length = sizeof(more);
      if (zmq_.getsockopt(replay_, ZMQ_RCVMORE, &more, &length) != 0) return {};
    }
    return frames;
  }

  void Reply(std::string_view client, uint64_t number, std::string_view batch) {
    const auto bytes = BigEndian(number);
    Send(replay_, client, ZMQ_SNDMORE);
    Send(replay_, {}, ZMQ_SNDMORE);
    Send(replay_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, ZMQ_SNDMORE);
    Send(replay_, batch, 0);
  }

 private:
  Result<void*> Bind(int type, const char* name, const std::string& endpoint) {
    void* const socket = context_ == nullptr ? nullptr : zmq_.socket(context_, type);
    if (socket == nullptr) return Internal(fmt::format("{}: {}", name, Why()));
    const int linger_ms = 0;
    const int64_t max_bytes = 1024;  // of what somebody sends us
    zmq_.setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof(linger_ms));
    zmq_.setsockopt(socket, ZMQ_SNDHWM, &kMaxMessages, sizeof(kMaxMessages));
    zmq_.setsockopt(socket, ZMQ_MAXMSGSIZE, &max_bytes, sizeof(max_bytes));
    if (zmq_.bind(socket, endpoint.c_str()) == 0) return socket;
    const std::string why = Why();
    zmq_.close(socket);
    return InvalidArgument(
        name, fmt::format("got '{}', which cannot be bound ({}); say tcp://ADDRESS:PORT with a "
                          "free port, or ipc://PATH",
                          endpoint, why));
  }

  // Never waits: what a client does not take in time is lost to it.
  void Send(void* socket, std::string_view frame, int flags) {
    zmq_.send(socket, frame.data(), frame.size(), flags | ZMQ_DONTWAIT);
  }

  std::string Why() const { return zmq_.strerror(zmq_.last_errno()); }

  const ZmqCalls& zmq_;
  void* const context_;
  void* pub_ = nullptr;
  void* replay_ = nullptr;
};

class Publisher : public KvObserver {
 public:
  Publisher(std::unique_ptr<Sockets> sockets, const KvEventsOptions& options,
            const MediumNames& media, int wakeup)
      : sockets_(std::move(sockets)), options_(options), media_(media), wakeup_(wakeup) {
    thread_ = std::thread([this] { Run(); });
  }
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;
  ~Publisher() override {
    is_ending_ = true;
    Wake();
    thread_.join();
    close(wakeup_);
  }

  void OnStored(const StoredKvBlock& block) noexcept override {
    if (queue_.AddStored(block)) Wake();
  }
  void OnRemoved(uint64_t hash, KvMedium medium) noexcept override {
    if (queue_.AddRemoved(hash, medium)) Wake();
  }
  bool OnCleared() noexcept override {
    if (queue_.AddCleared()) Wake();
    return true;
  }

 private:
  void Wake() const {
    const uint64_t one = 1;
    (void)!write(wakeup_, &one, sizeof(one));
  }

  void Run() {
    NameThisThread("kv-events");
    std::vector<Event> events;
    bool has_begun = false;
    while (!is_ending_) {
      try {
        const EventQueue::Before before = queue_.Take(&events);
        if (before.were_dropped)
          logging::Warning("KV events were dropped: subscribers are told that no block is held",
                           {{"endpoint", options_.endpoint}});
        const bool is_cleared = before.is_cleared || !has_begun;
        if (is_cleared || !events.empty()) Send(is_cleared, events);
        has_begun = true;
        if (sockets_->Wait(wakeup_)) Replay();
      } catch (const std::bad_alloc&) {
        queue_.Drop();
      }
      uint64_t count = 0;
      (void)!read(wakeup_, &count, sizeof(count));
    }
    try {
      Send(/*is_cleared=*/true, {});
    } catch (const std::bad_alloc&) {  // subscribers find out by themselves
    }
  }

  void Send(bool is_cleared, const std::vector<Event>& events) {
    sent_.emplace_back(EncodeBatch(SecondsNow(), is_cleared, events, media_));
    sent_bytes_ += sent_.back().size();
    sockets_->Publish(options_.topic, num_sent_++, sent_.back());
    while (sent_.size() > static_cast<size_t>(options_.buffer_steps) ||
           sent_bytes_ > kMaxBufferBytes) {
      sent_bytes_ -= sent_.front().size();
      sent_.pop_front();
    }
  }

  // Asked with a number: all batches from that number on that are kept, and an end.
  void Replay() {
    const std::vector<std::string> frames = sockets_->Receive();
    if (frames.size() != 3 || !frames[1].empty() || frames[2].size() != 8) return;
    const uint64_t first = num_sent_ - sent_.size();
    for (uint64_t n = std::max(FromBigEndian(frames[2]), first); n < num_sent_; ++n)
      sockets_->Reply(frames[0], n, sent_[static_cast<size_t>(n - first)]);
    sockets_->Reply(frames[0], kEndOfReplay, {});
  }

  const std::unique_ptr<Sockets> sockets_;
  const KvEventsOptions options_;
  const MediumNames media_;
  const int wakeup_;  // an eventfd, not blocking

  EventQueue queue_{kMaxPending};
  std::atomic<bool> is_ending_{false};

  // The thread's.
  std::deque<std::string> sent_;  // the newest batches
  size_t sent_bytes_ = 0;
  uint64_t num_sent_ = 0;
  std::thread thread_;  // last: runs over all of the above
};

}  // namespace

Result<std::shared_ptr<KvObserver>> Publish(const KvEventsOptions& options,
                                            const MediumNames& media) {
  if (options.buffer_steps < 1 || options.buffer_steps > kMaxBufferSteps)
    return InvalidArgument(
        "kv_events_buffer_steps",
        fmt::format("got {}, must be in [1, {}]", options.buffer_steps, kMaxBufferSteps));
  ASSIGN_OR_RETURN(auto sockets, Sockets::Bind(options));
  const int wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wakeup < 0) return Internal("kv_events: no descriptor is left");
  logging::Info("KV events are published",
                {{"endpoint", options.endpoint}, {"topic", options.topic}});
  return std::shared_ptr<KvObserver>(
      std::make_shared<Publisher>(std::move(sockets), options, media, wakeup));
}

}  // namespace inflight::kv_events
