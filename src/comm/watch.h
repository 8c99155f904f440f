// SPDX-License-Identifier: Apache-2.0
// The control connections of a group that has met: heartbeats, and who is lost. Rank 0 has one to
// each other rank; the others have one to rank 0, by which they hear of each other.
//
// Threads: all functions are for any; a thread of its own reads and writes the connections. Where
// it finds no memory it reads later; a group that is over for a reason that there is no memory for
// ends with RESOURCE_EXHAUSTED.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "comm/tcp.h"
#include "comm/wire.h"
#include "inflight/status.h"

namespace inflight::comm {

// A control connection, and of the notice that is being read the bytes that have come.
struct Control {
  int rank = 0;  // of the peer
  Descriptor socket;
  Notice notice = {};
  size_t bytes = 0;

  // The next whole notice; kUnavailable where the connection is over, kDeadlineExceeded where not
  // all of it has come.
  Result<Notice> Read();
};

// "rank 3 is gone: the connection is closed"
Status RankIsGone(int rank, std::string_view reason);

// What it means that `from` says kLeft (kCancelled), kGone or kAborted (kUnavailable); OK of
// others.
Status MeaningOf(const Notice& notice, int from);

class Watch {
 public:
  // `name` begins what is told of a group that is over.
  Watch(int rank, std::vector<Control> controls, std::chrono::milliseconds silence,
        std::string name = {});
  ~Watch();  // leaves
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Why the group is over; OK while it is not.
  Status status() const;
  bool over() const { return over_.load(std::memory_order_acquire); }
  // What is last told to others: that it is over, or that this rank leaves.
  Notice last_notice() const;
  // Readable for poll(2) once the group is over.
  int over_fd() const { return over_event_.get(); }

  // Ends the group with `reason`, unless it is over, and tells the others `notice`.
  void End(const Status& reason, const Notice& notice);

 private:
  struct Peer {
    Control control;
    Deadline last_heard;
    bool left = false;
  };

  void Run();
  void Turn();
  void ReadNotices(Peer& peer);
  void Heed(Peer& peer, const Notice& notice);
  void FindSilent();
  void TellAll(const Notice& notice);

  const int rank_;
  const std::chrono::milliseconds silence_;
  const std::chrono::milliseconds beat_;
  const std::string name_;
  // Of the thread.
  std::vector<Peer> peers_;
  std::vector<pollfd> polled_;
  Deadline next_beat_;
  bool is_silence_due_ = false;  // once what has come is read
  bool is_stopping_ = false;
  Descriptor over_event_;
  Descriptor stop_event_;
  std::atomic<bool> over_{false};
  mutable std::mutex mutex_;
  Status status_;  // guarded by mutex_
  Notice notice_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace inflight::comm
