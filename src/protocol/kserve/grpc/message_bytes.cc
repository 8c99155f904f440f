// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/message_bytes.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <zlib.h>

#include <cstring>
#include <limits>
#include <string>

#include "base/check.h"
#include "protocol/grpc_listener/wire.h"
#include "protocol/kserve/grpc/inflate_stream.h"
#include "protocol/kserve/grpc/part_count.h"

namespace inflight::kserve_grpc {
namespace {

using google::protobuf::Message;
using google::protobuf::io::ArrayInputStream;
using grpc_listener::kPrefixBytes;

class Parser {
 public:
  Parser(const grpc_listener::RpcMessage& message, int64_t max_bytes, MemoryCharge& charge,
         Message& out, const IsWanted& is_wanted)
      : bytes_(message.bytes),
        coding_(message.coding),
        max_bytes_(max_bytes),
        charge_(charge),
        out_(out),
        is_wanted_(is_wanted) {}

  ParseFailure Parse() {
    switch (coding_) {
      case Coding::kGzip:
        return ParsePacked(InflateStream::Wrapper::kGzip);
      case Coding::kDeflate:
        return ParsePacked(InflateStream::Wrapper::kZlib);
      case Coding::kIdentity:
        return ParsePlain();
    }
    return ParseFailure::kNoMessage;
  }

 private:
  // As they were sent: a message has at most as many bytes as fit in an int.
  ArrayInputStream Sent() const { return {bytes_.data(), static_cast<int>(bytes_.size())}; }

  ParseFailure ParsePlain() {
    if (bytes_.size() > kBytesOfFewParts) {
      ArrayInputStream looked_through = Sent();
      const ParseFailure failure = Look(looked_through, bytes_.size());
      if (failure != ParseFailure::kNone || !wants_) return failure;
    }
    return out_.ParseFromArray(bytes_.data(), static_cast<int>(bytes_.size()))
               ? ParseFailure::kNone
               : ParseFailure::kNoMessage;
  }

  ParseFailure ParsePacked(InflateStream::Wrapper wrapper) {
    ArrayInputStream packed = Sent();
    InflateStream looked_through(packed, wrapper, max_bytes_);
    const ParseFailure failure = Look(looked_through, 0);
    if (looked_through.end() == InflateStream::End::kTooLarge) return ParseFailure::kTooLarge;
    if (looked_through.end() == InflateStream::End::kBroken) return ParseFailure::kBroken;
    if (failure != ParseFailure::kNone || !wants_) return failure;
    ArrayInputStream again = Sent();
    InflateStream unpacked(again, wrapper, max_bytes_);
    const bool is_message = out_.ParseFromZeroCopyStream(&unpacked);
    switch (unpacked.end()) {
      case InflateStream::End::kBroken:
        return ParseFailure::kBroken;
      case InflateStream::End::kTooLarge:
        return ParseFailure::kTooLarge;
      case InflateStream::End::kComplete:
        return is_message ? ParseFailure::kNone : ParseFailure::kNoMessage;
      case InflateStream::End::kOpen:
        return ParseFailure::kNoMessage;  // seen before all of it was unpacked
    }
    return ParseFailure::kNoMessage;
  }

  // `num_bytes`: of the message; 0 = as many as are read. Sets wants_.
  ParseFailure Look(google::protobuf::io::ZeroCopyInputStream& stream, size_t num_bytes) {
    const PartCount parts = CountParts(stream, *out_.GetDescriptor());
    if (parts.IsTooLarge()) return ParseFailure::kManyParts;
    wants_ = !is_wanted_ || is_wanted_(parts);
    if (!wants_) return ParseFailure::kNone;
    if (num_bytes == 0) num_bytes = static_cast<size_t>(stream.ByteCount());
    const Status room = charge_.Resize(num_bytes + static_cast<size_t>(parts.num_bytes()));
    return room.ok() ? ParseFailure::kNone : ParseFailure::kNoRoom;
  }

  const std::string& bytes_;
  const Coding coding_;
  const int64_t max_bytes_;
  MemoryCharge& charge_;
  Message& out_;
  const IsWanted& is_wanted_;
  bool wants_ = true;
};

// Replaces what follows the prefix by the same compressed; false: it is not smaller.
bool Compress(Coding coding, std::string& framed) {
  const size_t num_bytes = framed.size() - kPrefixBytes;
  z_stream zlib{};
  const int window_bits = coding == Coding::kGzip ? 15 + 16 : 15;
  CHECK(deflateInit2(&zlib, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window_bits, 8,
                     Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(framed.size(), '\0');  // one that does not fit is not smaller
  zlib.next_in = reinterpret_cast<Bytef*>(framed.data() + kPrefixBytes);
  zlib.avail_in = static_cast<uInt>(num_bytes);
  zlib.next_out = reinterpret_cast<Bytef*>(packed.data() + kPrefixBytes);
  zlib.avail_out = static_cast<uInt>(num_bytes);
  const bool is_smaller = deflate(&zlib, Z_FINISH) == Z_STREAM_END && zlib.total_out < num_bytes;
  packed.resize(kPrefixBytes + zlib.total_out);
  deflateEnd(&zlib);
  if (is_smaller) framed = std::move(packed);
  return is_smaller;
}

}  // namespace

ParseFailure ParseMessage(const grpc_listener::RpcMessage& message, int64_t max_bytes,
                          MemoryCharge& charge, Message& out, const IsWanted& is_wanted) {
  return Parser(message, max_bytes, charge, out, is_wanted).Parse();
}

Status WriteMessage(const Message& message, Coding coding, std::string& out) {
  const size_t num_bytes = message.ByteSizeLong();
  if (num_bytes > static_cast<size_t>(std::numeric_limits<int>::max())) {
    return Internal("the response is over the 2 GiB that one message holds");
  }
  out.resize(kPrefixBytes + num_bytes);
  message.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(out.data() + kPrefixBytes));
  const bool is_compressed = coding != Coding::kIdentity && Compress(coding, out);
  const auto prefix =
      grpc_listener::MakePrefix(is_compressed, static_cast<uint32_t>(out.size() - kPrefixBytes));
  std::memcpy(out.data(), prefix.data(), prefix.size());
  return {};
}

Status ToGrpcStatus(ParseFailure failure, int64_t max_bytes) {
  switch (failure) {
    case ParseFailure::kNone:
      return {};
    case ParseFailure::kNoMessage:
      return Internal("Unable to parse request");
    case ParseFailure::kBroken:
      return Internal(
          "Unable to decompress request: the data is no complete stream of the kind that "
          "grpc-encoding names (gzip, or deflate with zlib's header)");
    case ParseFailure::kManyParts:
      return InvalidArgument("request has more than " + std::to_string(kMaxSubmessages) +
                             " tensors and parameters, or " + std::to_string(kMaxTexts) +
                             " elements in bytes_contents; send elements in raw_input_contents");
    case ParseFailure::kNoRoom:
      return ResourceExhausted(
          "the requests under way leave no room for this one; try again later, or raise "
          "--request-memory-byte-size");
    case ParseFailure::kTooLarge: {
      const std::string limit = std::to_string(max_bytes);
      return ResourceExhausted("Received message larger than max (more than " + limit +
                               " unpacked vs. " + limit +
                               "); send less at a time, or raise --grpc-max-input-size");
    }
  }
  return Internal("Unable to parse request");
}

}  // namespace inflight::kserve_grpc
