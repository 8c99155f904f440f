// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/inflate_stream.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

#include "protocol/kserve/grpc/test_packing.h"

namespace inflight::kserve_grpc {
namespace {

using google::protobuf::io::ArrayInputStream;
using End = InflateStream::End;
using Wrapper = InflateStream::Wrapper;

constexpr int64_t kNoLimit = std::numeric_limits<int>::max();

struct Unpacked {
  std::string text;
  End end;
  int64_t num_unpacked;
};

// `packed` comes in slices of `slice_bytes`.
Unpacked Unpack(const std::string& packed, Wrapper wrapper, int64_t max_bytes = kNoLimit,
                int slice_bytes = -1) {
  ArrayInputStream slices(packed.data(), static_cast<int>(packed.size()), slice_bytes);
  InflateStream stream(slices, wrapper, max_bytes);
  std::string text;
  const void* data = nullptr;
  int size = 0;
  while (stream.Next(&data, &size)) text.append(static_cast<const char*>(data), size);
  return {std::move(text), stream.end(), stream.num_unpacked()};
}

// Half of it compresses well.
std::string Text(size_t num_bytes) {
  std::mt19937 random(1);
  std::string text(num_bytes, 'x');
  for (size_t i = 0; i < num_bytes / 2; ++i) text[i] = static_cast<char>(random());
  return text;
}

TEST(InflateStream, UnpacksWhatZlibPacksWhateverItsSlices) {
  constexpr size_t kBuffer = InflateStream::kBufferBytes;
  for (const Wrapper wrapper : {Wrapper::kGzip, Wrapper::kZlib}) {
    for (const size_t num_bytes : {size_t{0}, size_t{1}, size_t{1000}, kBuffer - 1, kBuffer,
                                   kBuffer + 1, 2 * kBuffer, 5 * kBuffer + 7}) {
      const std::string text = Text(num_bytes);
      const std::string packed = Pack(text, wrapper);
      for (const int slice_bytes : {1, 7, 4096, -1}) {
        const Unpacked got = Unpack(packed, wrapper, kNoLimit, slice_bytes);
        EXPECT_EQ(got.end, End::kComplete) << num_bytes << " in slices of " << slice_bytes;
        EXPECT_TRUE(got.text == text) << num_bytes << " in slices of " << slice_bytes;
      }
    }
  }
}

TEST(InflateStream, NoBytesAreAnEmptyMessage) {
  const Unpacked got = Unpack("", Wrapper::kGzip);
  EXPECT_EQ(got.end, End::kComplete);
  EXPECT_EQ(got.text, "");
}

TEST(InflateStream, TheLimitIsAllThatIsUnpacked) {
  const std::string text = Text(100000);
  for (const Wrapper wrapper : {Wrapper::kGzip, Wrapper::kZlib}) {
    const std::string packed = Pack(text, wrapper);
    EXPECT_EQ(Unpack(packed, wrapper, 100000).end, End::kComplete);
    for (const int64_t limit : {99999, 65536, 65535, 1, 0}) {
      const Unpacked got = Unpack(packed, wrapper, limit);
      EXPECT_EQ(got.end, End::kTooLarge) << limit;
      EXPECT_EQ(got.num_unpacked, limit + 1);
      EXPECT_LE(static_cast<int64_t>(got.text.size()), limit);
    }
  }
}

TEST(InflateStream, ABombIsUnpackedUpToTheLimit) {
  const std::string small = Bomb("start", 3);
  EXPECT_EQ(Unpack(small, Wrapper::kGzip).end, End::kComplete);  // it is what it claims to be
  EXPECT_TRUE(Unpack(small, Wrapper::kGzip).text == "start" + std::string(3 << 20, '\0'));

  const std::string bomb = Bomb("start", 1024);
  EXPECT_LT(bomb.size(), size_t{1200} << 10);
  const Unpacked got = Unpack(bomb, Wrapper::kGzip, 1 << 20);
  EXPECT_EQ(got.end, End::kTooLarge);
  EXPECT_EQ(got.num_unpacked, (1 << 20) + 1);
}

TEST(InflateStream, WhatIsNotOneCompleteStreamIsBroken) {
  const std::string text = Text(1000);
  const std::string gzip = Pack(text, Wrapper::kGzip), zlib = Pack(text, Wrapper::kZlib);
  EXPECT_EQ(Unpack("garbage", Wrapper::kGzip).end, End::kBroken);
  EXPECT_EQ(Unpack(zlib, Wrapper::kGzip).end, End::kBroken);
  EXPECT_EQ(Unpack(gzip, Wrapper::kZlib).end, End::kBroken);
  EXPECT_EQ(Unpack(zlib.substr(2), Wrapper::kZlib).end, End::kBroken);  // bare deflate data
  EXPECT_EQ(Unpack(gzip + "x", Wrapper::kGzip).end, End::kBroken);
  EXPECT_EQ(Unpack(gzip + gzip, Wrapper::kGzip, kNoLimit, /*slice_bytes=*/5).end, End::kBroken);
  for (size_t length = 1; length < gzip.size(); ++length) {
    EXPECT_EQ(Unpack(gzip.substr(0, length), Wrapper::kGzip).end, End::kBroken) << length;
  }
  std::string flipped = gzip;
  flipped[flipped.size() - 6] ^= 1;  // in the checksum
  EXPECT_EQ(Unpack(flipped, Wrapper::kGzip).end, End::kBroken);
}

TEST(InflateStream, ParsersReadAheadGoBackAndSkip) {
  const std::string text = Text(200000);
  const std::string packed = Pack(text, Wrapper::kZlib);
  ArrayInputStream slices(packed.data(), static_cast<int>(packed.size()));
  InflateStream stream(slices, Wrapper::kZlib, kNoLimit);
  const void* data = nullptr;
  int size = 0;
  ASSERT_TRUE(stream.Next(&data, &size));
  ASSERT_GT(size, 10);
  stream.BackUp(size - 10);
  EXPECT_EQ(stream.ByteCount(), 10);
  ASSERT_TRUE(stream.Skip(150000));
  EXPECT_EQ(stream.ByteCount(), 150010);
  std::string rest;
  while (stream.Next(&data, &size)) rest.append(static_cast<const char*>(data), size);
  EXPECT_TRUE(rest == text.substr(150010));
  EXPECT_FALSE(stream.Skip(1));
}

}  // namespace
}  // namespace inflight::kserve_grpc
