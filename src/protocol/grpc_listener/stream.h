// SPDX-License-Identifier: Apache-2.0
// An HTTP/2 stream as an Rpc.
//
//   head -> open -> over        over: for the client, as its trailers are sent or it has gone
//   ... and done once the service has called Finish too: OnDone is the last call of its reactor.
//
// Threads: Rpc's methods come from any thread and go on on the I/O thread, which has the rest to
// itself. Once the connection has closed there is no such thread to go on on: Finish then says
// OnDone where it is called.
#pragma once

#include <nghttp2/nghttp2.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/request_log.h"
#include "protocol/grpc_listener/message_reader.h"
#include "protocol/grpc_listener/rpc.h"

namespace inflight::grpc_listener {

class Session;

// The thread that a session lives on.
class SessionThread {
 public:
  virtual ~SessionThread() = default;
  virtual bool IsThis() const = 0;
  // `task` runs on it, and what it leaves to be sent is sent. False: it is gone, and so is the
  // task.
  virtual bool Post(std::function<void()> task) = 0;

  std::atomic<int> num_lost{0};  // calls for which nothing could be posted, for want of memory
};

// What the head says.
struct Head {
  std::string method, path, content_type, timeout, encoding;
  Metadata metadata;
  std::vector<Coding> accepted_codings;
  size_t num_bytes = 0;  // as SETTINGS_MAX_HEADER_LIST_SIZE counts them

  void Add(std::string_view name, std::string_view value);
};

class Stream final : public Rpc, public std::enable_shared_from_this<Stream> {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Stream(Session& session, std::shared_ptr<SessionThread> thread, int32_t id);

  // Any thread.
  std::string_view path() const override { return head_.path; }
  const Metadata& metadata() const override { return head_.metadata; }
  const std::string& client() const override { return client_; }
  const std::shared_ptr<AccountShare>& share() const override { return share_; }
  std::shared_ptr<RequestTally> tally() const override {
    return logged_ ? logged_->tally : nullptr;
  }
  const std::vector<Coding>& accepted_codings() const override { return head_.accepted_codings; }
  int64_t read_started_ns() const override { return read_started_ns_; }
  void SetResponseCoding(Coding coding) override { response_coding_ = coding; }
  void Read() override;
  void Write(std::string message) override;
  void Finish(Status status, std::string message) override;
  void Lose() override;
  void Post(std::function<void()> task) override;

  // The I/O thread.
  int32_t id() const { return id_; }
  Head& head() { return head_; }
  Time deadline() const { return deadline_; }
  bool is_half_closed() const { return is_half_closed_; }
  bool is_lost() const { return is_lost_; }

  void OnHeadComplete();
  // By the listener itself; the reactor is told that the call is over.
  void Fail(Status status);
  void Abandon(Status status);  // its reactor has thrown
  void OnData(std::string_view bytes);
  void OnHalfClose();
  void OnExpired();
  void OnClosed();   // by either side, or with the connection
  void OnFlushed();  // what was sent has left
  // Tells the reactor the next of what has happened. False: there is nothing.
  bool TellReactor();
  // Fills a DATA frame.
  ssize_t Fill(uint8_t* out, size_t size, uint32_t* flags);

 private:
  void DoFinish(Status status, std::string message);
  void OnMessageSent();
  void GiveMessage(const std::shared_ptr<RpcReactor>& reactor);
  void SetGone();
  void CountWaiting();
  // Known, and submitted unless that found no memory: then it is done again.
  bool IsEndOnItsWay() const { return end_.has_value() && has_head_; }
  void SubmitHead();
  void Resume();
  void SubmitTrailers();
  void SubmitOnlyTrailers();
  void Tell();  // TellReactor is to be called
  void TellDone();

  Session* session_;  // null: over
  const std::shared_ptr<SessionThread> thread_;
  const int32_t id_;
  const std::string client_;
  const std::shared_ptr<AccountShare> share_;
  Head head_;
  std::optional<LoggedRequest> logged_;  // where the call has a line of the request log
  Time deadline_ = Time::max();
  int64_t read_started_ns_ = 0;

  std::optional<MessageReader> reader_;
  size_t num_unconsumed_ = 0;  // bytes whose window the client has not got back
  bool reads_ = false;         // Read was called, and not answered
  bool is_half_closed_ = false;

  Coding response_coding_ = Coding::kIdentity;
  std::string out_;  // a message, with its prefix
  size_t num_sent_ = 0;
  MemoryCharge out_charge_;
  bool has_head_ = false;      // submitted
  bool is_deferred_ = false;   // nghttp2 waits to be told of more data
  bool is_written_ = false;    // OnWritten is due
  bool writes_ = false;        // Write was called, and not answered
  bool is_cancelled_ = false;  // OnCancel is due
  std::optional<Status> end_;  // the status, once it is known
  bool has_ended_ = false;     // trailers were submitted

  // Part of a message came, or part of one is to be sent: it waits for its client.
  bool is_waiting_ = false;
  bool is_over_ = false;
  bool is_finished_ = false;  // the service has called Finish
  bool is_sent_ = false;      // all that was to be sent has left

  std::shared_ptr<RpcReactor> reactor_;  // until OnDone

  std::atomic<bool> is_lost_{false};

  std::mutex mutex_;  // guards what follows, of the end without a thread
  bool is_gone_ = false;
  bool is_finished_late_ = false;
};

}  // namespace inflight::grpc_listener
