// SPDX-License-Identifier: Apache-2.0
#include "protocol/grpc_listener/message_reader.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace inflight::grpc_listener {
namespace {

constexpr size_t kFirstBytes = 16 * 1024;  // that a message is given at once

Status NoRoom(const Status& status) { return ResourceExhausted(status.message()); }

}  // namespace

Status MessageReader::Add(std::string_view bytes) {
  while (!bytes.empty() && !is_complete_) {
    if (Status status = AddSome(bytes); !status.ok()) return status;
  }
  if (bytes.empty()) return {};
  if (const Status room = backlog_charge_.Reserve(backlog_.size() + bytes.size()); !room.ok()) {
    return NoRoom(room);
  }
  backlog_.append(bytes);
  return {};
}

Status MessageReader::AddSome(std::string_view& bytes) {
  if (num_prefix_bytes_ < kPrefixBytes) {
    if (num_prefix_bytes_ == 0) started_ns_ = Clock::System().NowNs();
    prefix_[num_prefix_bytes_++] = bytes.front();
    bytes.remove_prefix(1);
    return num_prefix_bytes_ == kPrefixBytes ? BeginMessage() : Status::Ok();
  }
  const size_t count = std::min(bytes.size(), length_ - message_.bytes.size());
  if (Status status = Reserve(message_.bytes.size() + count); !status.ok()) return status;
  message_.bytes.append(bytes.substr(0, count));
  bytes.remove_prefix(count);
  is_complete_ = message_.bytes.size() == length_;
  return {};
}

Status MessageReader::BeginMessage() {
  length_ = LengthOf(prefix_);
  if (length_ > max_bytes_) {
    return ResourceExhausted("Received message larger than max (" + std::to_string(length_) +
                             " vs. " + std::to_string(max_bytes_) +
                             "); send less at a time, or raise --grpc-max-input-size");
  }
  const bool is_compressed = prefix_[0] != 0;
  if (is_compressed && coding_ == Coding::kIdentity) {
    return Internal("a message is marked as compressed, and grpc-encoding names no way");
  }
  message_.coding = is_compressed ? coding_ : Coding::kIdentity;
  message_.charge = MemoryCharge(share_);
  is_complete_ = length_ == 0;
  return Reserve(std::min(length_, kFirstBytes));
}

// Grows with what comes: a length that is announced takes nothing.
Status MessageReader::Reserve(size_t num_bytes) {
  std::string& bytes = message_.bytes;
  if (num_bytes <= bytes.capacity()) return {};
  const size_t capacity = std::min(length_, std::max(num_bytes, 2 * bytes.capacity()));
  if (const Status room = message_.charge.Resize(capacity); !room.ok()) return NoRoom(room);
  bytes.reserve(capacity);
  return {};
}

RpcMessage MessageReader::Take(Status& status) {
  RpcMessage taken = std::exchange(message_, {});
  is_complete_ = false;
  num_prefix_bytes_ = 0;
  const std::string waited = std::exchange(backlog_, {});
  status = Add(waited);
  if (backlog_.empty()) backlog_charge_.Release();
  return taken;
}

}  // namespace inflight::grpc_listener
