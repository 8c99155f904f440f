// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/inflate_stream.h"

#include <algorithm>

#include "base/check.h"

namespace inflight::kserve_grpc {
namespace {

constexpr int kWindowBits = 15;
constexpr int kGzipWrapper = 16;  // added to the window bits, as zlib.h says

}  // namespace

InflateStream::InflateStream(google::protobuf::io::ZeroCopyInputStream& packed, Wrapper wrapper,
                             int64_t max_bytes)
    : packed_(packed),
      max_bytes_(max_bytes),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {
  if (!HasInput()) {
    end_ = End::kComplete;
    return;
  }
  // Fails for want of memory alone.
  is_started_ =
      inflateInit2(&zlib_, kWindowBits + (wrapper == Wrapper::kGzip ? kGzipWrapper : 0)) == Z_OK;
  if (!is_started_) end_ = End::kBroken;
}

InflateStream::~InflateStream() {
  if (is_started_) inflateEnd(&zlib_);
}

bool InflateStream::Next(const void** data, int* size) {
  if (num_backed_up_ > 0) {
    *data = buffer_.get() + (num_in_buffer_ - num_backed_up_);
    *size = num_backed_up_;
    num_backed_up_ = 0;
    return true;
  }
  num_in_buffer_ = 0;
  while (end_ == End::kOpen && num_in_buffer_ == 0) end_ = Unpack();
  if (num_in_buffer_ == 0 || end_ == End::kBroken || end_ == End::kTooLarge) return false;
  *data = buffer_.get();
  *size = num_in_buffer_;
  return true;
}

// Fills the buffer as far as the input at hand and the limit go. zlib takes the checksum last, so
// that without input it holds no output of complete data.
InflateStream::End InflateStream::Unpack() {
  if (!HasInput()) return End::kBroken;  // cut off
  const auto room = std::min<int64_t>(kBufferBytes, max_bytes_ - num_unpacked_ + 1);
  zlib_.next_out = reinterpret_cast<Bytef*>(buffer_.get());
  zlib_.avail_out = static_cast<uInt>(room);
  const int result = inflate(&zlib_, Z_NO_FLUSH);
  num_in_buffer_ = static_cast<int>(room) - static_cast<int>(zlib_.avail_out);
  num_unpacked_ += num_in_buffer_;
  if (num_unpacked_ > max_bytes_) return End::kTooLarge;
  if (result == Z_OK) return End::kOpen;
  return result == Z_STREAM_END && !HasInput() ? End::kComplete : End::kBroken;
}

// Of the packed bytes; asks for more when all were taken.
bool InflateStream::HasInput() {
  while (zlib_.avail_in == 0) {
    const void* data = nullptr;
    int size = 0;
    if (!packed_.Next(&data, &size)) return false;
    zlib_.next_in = static_cast<Bytef*>(const_cast<void*>(data));
    zlib_.avail_in = static_cast<uInt>(size);
  }
  return true;
}

void InflateStream::BackUp(int count) {
  CHECK(count >= 0 && count <= num_in_buffer_);
  num_backed_up_ = count;
}

bool InflateStream::Skip(int count) {
  const void* data = nullptr;
  int size = 0;
  while (count > 0) {
    if (!Next(&data, &size)) return false;
    if (size > count) BackUp(size - count);
    count -= size;
  }
  return true;
}

}  // namespace inflight::kserve_grpc
