// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/compression.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/status_macros.h"

namespace inflight::kserve_http {
namespace {

constexpr int kWindowBits = 15;
constexpr int kDetectWrapper = 32;  // added to the window bits, as zlib.h says
constexpr int kGzipWrapper = 16;
constexpr size_t kStepBytes = 256 * 1024;
constexpr size_t kMaxZlibBytes = size_t{1} << 30;  // of one call; its counters have 32 bits

using Codec = int (*)(z_streamp stream, int flush);  // inflate or deflate

// Feeds `input` to deflate or inflate and appends what comes out, which `charge` is for. False on
// broken or ended data, when `out` would exceed `max_bytes`, and where there is no room for it.
bool Feed(z_stream& stream, Codec codec, std::string_view input, int flush, std::string& out,
          size_t max_bytes, MemoryCharge& charge, Status& room, bool& ended) {
  while (true) {
    const size_t part = std::min(input.size(), kMaxZlibBytes);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
    stream.avail_in = static_cast<uInt>(part);
    const size_t old_size = out.size();
    const size_t needed = old_size + kStepBytes;
    room = charge.Reserve(needed <= out.capacity() ? out.capacity()
                                                   : std::max(needed, 2 * out.capacity()));
    if (!room.ok()) return false;
    out.resize(needed);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + old_size);
    stream.avail_out = kStepBytes;
    const int result = codec(&stream, part == input.size() ? flush : Z_NO_FLUSH);
    out.resize(out.size() - stream.avail_out);
    input.remove_prefix(part - stream.avail_in);
    ended = result == Z_STREAM_END;
    if (out.size() > max_bytes ||
        (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)) {
      return false;
    }
    if (ended) return true;
    if (input.empty() && stream.avail_out > 0) return true;  // all taken, nothing held back
  }
}

Result<std::shared_ptr<const std::string>> Inflate(const std::string& body, size_t max_bytes,
                                                   MemoryCharge charge) {
  z_stream stream{};
  if (inflateInit2(&stream, kWindowBits + kDetectWrapper) != Z_OK) {
    return Internal("zlib refused to start");
  }
  std::string out;
  bool ended = false;
  Status room;
  const bool is_good = Feed(stream, inflate, body, Z_NO_FLUSH, out, max_bytes, charge, room, ended);
  inflateEnd(&stream);
  RETURN_IF_ERROR(room);
  if (out.size() > max_bytes) {
    return InvalidArgument("Decompressed data size exceeds the maximum allowed value of " +
                           std::to_string(max_bytes) +
                           " bytes. Use --http-max-input-size to increase the limit.");
  }
  if (!is_good || !ended) {
    return InvalidArgument(
        "failed to decompress the request body: the data is no complete gzip or "
        "zlib stream");
  }
  return std::shared_ptr<const std::string>(Charged(std::move(out), std::move(charge)));
}

// "gzip" or "gzip;q=0.5"; the weight is 0 for what is to be left out.
std::pair<std::string_view, double> ParseAccepted(std::string_view item) {
  const size_t semicolon = item.find(';');
  if (semicolon == std::string_view::npos) return {item, 1.0};
  const std::string_view weight_text = item.substr(semicolon + 1);
  double weight = 0;
  if (!weight_text.starts_with("q=")) return {item, 0};
  const char* end = weight_text.data() + weight_text.size();
  const auto result = std::from_chars(weight_text.data() + 2, end, weight);
  if (result.ec != std::errc{} || result.ptr != end) weight = 0;
  return {item.substr(0, semicolon), weight};
}

}  // namespace

Result<std::shared_ptr<const std::string>> DecodedBody(const http_listener::HttpRequest& request,
                                                       size_t max_bytes) {
  const std::string* coding = request.FindHeader("Content-Encoding");
  if (coding == nullptr || *coding == "identity") return request.body;
  if (*coding != "gzip" && *coding != "deflate") {
    return Unimplemented("Unsupported compression type");
  }
  return Inflate(*request.body, max_bytes, MemoryCharge(request.memory));
}

Coding AcceptedCoding(std::string_view accept_encoding) {
  static constexpr std::pair<std::string_view, Coding> kCodings[] = {
      {"identity", Coding::kIdentity}, {"gzip", Coding::kGzip}, {"deflate", Coding::kDeflate}};
  Coding best = Coding::kIdentity;
  double best_weight = 0;
  while (!accept_encoding.empty()) {
    const size_t comma = std::min(accept_encoding.find(','), accept_encoding.size());
    std::string_view item = accept_encoding.substr(0, comma);
    accept_encoding.remove_prefix(std::min(comma + 1, accept_encoding.size()));
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    const auto [name, weight] = ParseAccepted(item);
    for (const auto& [known, coding] : kCodings) {
      if (name != known || weight <= best_weight) continue;
      best = coding;
      best_weight = weight;
    }
  }
  return best;
}

Status Compress(Coding coding, http_listener::HttpResponse& response) {
  if (coding == Coding::kIdentity) return Status::Ok();
  z_stream stream{};
  const int window = coding == Coding::kGzip ? kWindowBits + kGzipWrapper : kWindowBits;
  constexpr int kMemLevel = 8;  // zlib's default
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window, kMemLevel,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return Internal("zlib refused to start");
  }
  std::string out;
  bool ended = false;
  const auto feed = [&](std::string_view bytes, int flush) {
    MemoryCharge uncounted;  // the listener charges the answer
    Status room;
    return Feed(stream, deflate, bytes, flush, out, out.max_size(), uncounted, room, ended);
  };
  bool is_good = feed(response.body, Z_NO_FLUSH);
  for (const auto& [data, owner] : response.segments) {
    const std::string_view bytes(reinterpret_cast<const char*>(data.data()), data.size());
    is_good = is_good && feed(bytes, Z_NO_FLUSH);
  }
  is_good = is_good && feed({}, Z_FINISH);
  deflateEnd(&stream);
  if (!is_good || !ended) return Internal("failed to compress the response");
  response.body = std::move(out);
  response.segments.clear();
  response.headers.emplace_back("Content-Encoding", coding == Coding::kGzip ? "gzip" : "deflate");
  return Status::Ok();
}

}  // namespace inflight::kserve_http
