// SPDX-License-Identifier: Apache-2.0
// Compressed data for the tests, made by zlib.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <string>

#include "protocol/kserve/grpc/inflate_stream.h"

namespace inflight::kserve_grpc {

// What `text` is after `flush`, appended to `out`.
inline void Deflate(z_stream& stream, const std::string& text, int flush, std::string& out) {
  std::string packed(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int result = deflate(&stream, flush);
  EXPECT_EQ(result, flush == Z_FINISH ? Z_STREAM_END : Z_OK);
  EXPECT_EQ(stream.avail_in, 0U);
  packed.resize(packed.size() - stream.avail_out);
  out += packed;
}

inline z_stream StartDeflate(int window_bits) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window_bits, /*memLevel=*/8,
                         Z_DEFAULT_STRATEGY),
            Z_OK);
  return stream;
}

inline std::string Pack(const std::string& text, InflateStream::Wrapper wrapper) {
  z_stream stream = StartDeflate(wrapper == InflateStream::Wrapper::kGzip ? 15 + 16 : 15);
  std::string out;
  Deflate(stream, text, Z_FINISH, out);
  deflateEnd(&stream);
  return out;
}

// gzip of `start` and `num_mib` MiB of zeros, a thousandth of that in size: blocks that do not
// refer to what is before them, repeated.
inline std::string Bomb(const std::string& start, int num_mib) {
  const std::string zeros(size_t{1} << 20, '\0');
  const auto crc_of = [](const std::string& text) {
    return crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size()));
  };
  z_stream stream = StartDeflate(-15);  // without a wrapper
  std::string out("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10), block, end;
  Deflate(stream, start, Z_FULL_FLUSH, out);
  Deflate(stream, zeros, Z_FULL_FLUSH, block);
  Deflate(stream, {}, Z_FINISH, end);
  deflateEnd(&stream);
  uLong crc = crc_of(start);
  const uLong crc_of_zeros = crc_of(zeros);
  for (int i = 0; i < num_mib; ++i) {
    out += block;
    crc = crc32_combine(crc, crc_of_zeros, static_cast<z_off_t>(zeros.size()));
  }
  out += end;
  const auto size = static_cast<uint32_t>(start.size() + (uint64_t{zeros.size()} * num_mib));
  for (const uint32_t value : {static_cast<uint32_t>(crc), size}) {
    for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(value >> shift);
  }
  return out;
}

}  // namespace inflight::kserve_grpc
