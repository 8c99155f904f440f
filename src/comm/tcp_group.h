// SPDX-License-Identifier: Apache-2.0
// The group of processes that have met (comm/rendezvous.h): a connection to each other rank.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/descriptor.h"
#include "comm/rendezvous.h"
#include "comm/watch.h"

namespace inflight::comm {

class TcpGroup : public Group {
 public:
  // `peers` has a connection of data for each rank, its own place empty; `watch` is null where the
  // group has one rank.
  TcpGroup(int rank, std::vector<Descriptor> peers, std::unique_ptr<Watch> watch);
  ~TcpGroup() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  Status Send(int rank, std::span<const std::byte> message) override;
  Result<std::vector<std::byte>> Receive(int rank, Deadline deadline) override;
  Status Exchange(int to, std::span<const std::byte> out, int from,
                  std::span<std::byte> in) override;
  Status status() const override;
  void Abort(const Status& reason) override;

 private:
  // A message on its way to a rank: `done` of its 8 bytes of length and its body have been sent.
  struct Outgoing {
    int to;
    std::span<const std::byte> body;
    uint64_t length;
    size_t done = 0;

    bool finished() const { return done == sizeof length + body.size(); }
  };
  // Bytes that come from a rank.
  struct Incoming {
    int from;
    std::span<std::byte> bytes;
    size_t done = 0;

    bool finished() const { return done == bytes.size(); }
  };

  Status CheckPeer(int rank) const;
  Status Lost(int rank, std::string_view reason);
  Result<bool> Advance(Outgoing& out);  // whether anything has been sent
  Result<bool> Advance(Incoming& in);
  // Waits until one of the two may go on; null or finished ones are not waited for.
  Status WaitFor(const Outgoing* out, const Incoming* in, Deadline deadline);
  Status Finish(Outgoing* out, Incoming* in, Deadline deadline);
  Status CheckLength(int from, uint64_t length);

  const int rank_;
  std::vector<Descriptor> peers_;  // [size]
  std::unique_ptr<Watch> watch_;
};

}  // namespace inflight::comm
