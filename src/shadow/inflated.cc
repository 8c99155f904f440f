// SPDX-License-Identifier: Apache-2.0
#include "shadow/inflated.h"

#include <zlib.h>

#include <array>

namespace inflight::shadow {

Result<std::string> Inflated(std::string bytes, grpc_listener::Coding coding, size_t max_bytes) {
  if (coding == grpc_listener::Coding::kIdentity || bytes.empty()) return bytes;
  constexpr int kGzip = 15 + 16;
  constexpr int kDeflate = 15;
  z_stream stream{};
  if (inflateInit2(&stream, coding == grpc_listener::Coding::kGzip ? kGzip : kDeflate) != Z_OK)
    return ResourceExhausted("no memory to inflate a message");
  stream.next_in = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string out;
  std::array<char, 64 * 1024> piece;
  int state = Z_OK;
  while (state == Z_OK && out.size() <= max_bytes) {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    state = inflate(&stream, Z_NO_FLUSH);
    out.append(piece.data(), piece.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  if (out.size() > max_bytes)
    return ResourceExhausted("the message is larger than " + std::to_string(max_bytes) + " bytes");
  if (state != Z_STREAM_END || stream.avail_in > 0)
    return InvalidArgument("the message is not compressed as it says");
  return out;
}

}  // namespace inflight::shadow
