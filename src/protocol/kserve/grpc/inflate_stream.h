// SPDX-License-Identifier: Apache-2.0
// A compressed message as a stream that a parser reads: unpacked while it is parsed, a buffer at a
// time and up to a limit. What it unpacks to is nowhere as a whole.
#pragma once

#include <google/protobuf/io/zero_copy_stream.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace inflight::kserve_grpc {

// Errors: reading ends, and `end` tells why.
class InflateStream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  enum class Wrapper { kGzip, kZlib };

  enum class End {
    kOpen,      // there may be more
    kComplete,  // all was unpacked, and its checksum is right
    kBroken,    // no such data, cut off, or more after its end
    kTooLarge,  // it unpacks to more than the limit
  };

  static constexpr int kBufferBytes = 64 * 1024;

  // `packed` outlives this. No packed bytes at all are an empty message, as gRPC has it.
  InflateStream(google::protobuf::io::ZeroCopyInputStream& packed, Wrapper wrapper,
                int64_t max_bytes);
  ~InflateStream() override;
  InflateStream(const InflateStream&) = delete;
  InflateStream& operator=(const InflateStream&) = delete;

  End end() const { return end_; }
  int64_t num_unpacked() const { return num_unpacked_; }  // at most a byte beyond the limit

  bool Next(const void** data, int* size) override;
  void BackUp(int count) override;
  bool Skip(int count) override;
  int64_t ByteCount() const override { return num_unpacked_ - num_backed_up_; }

 private:
  bool HasInput();
  End Unpack();

  google::protobuf::io::ZeroCopyInputStream& packed_;
  const int64_t max_bytes_;
  const std::unique_ptr<std::byte[]> buffer_;  // [kBufferBytes]
  z_stream zlib_{};
  End end_ = End::kOpen;
  bool is_started_ = false;  // zlib has its state
  int64_t num_unpacked_ = 0;
  int num_in_buffer_ = 0;
  int num_backed_up_ = 0;  // the last of the buffer, to be read again
};

}  // namespace inflight::kserve_grpc
