// SPDX-License-Identifier: Apache-2.0
// A request body for Boost.Beast that grows with the bytes that arrive: a large Content-Length
// alone allocates nothing, unlike with http::string_body.
#pragma once

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <cstdint>
#include <string>
#include <utility>  // before Boost 1.74 under C++20

namespace inflight::http_listener {

struct GrowingBody {
  using value_type = std::string;

  static uint64_t size(const value_type& body) { return body.size(); }

  class reader {
   public:
    template <bool is_request, class Fields>
    reader(boost::beast::http::header<is_request, Fields>&, value_type& body) : body_(body) {}

    void init(const boost::optional<uint64_t>& length, boost::system::error_code& ec) {
      constexpr uint64_t kMaxReserve = 256 * 1024;
      body_.reserve(static_cast<size_t>(std::min(length.value_or(0), kMaxReserve)));
      ec = {};
    }

    template <class ConstBufferSequence>
    size_t put(const ConstBufferSequence& buffers, boost::system::error_code& ec) {
      size_t num_bytes = 0;
      for (auto it = boost::asio::buffer_sequence_begin(buffers);
           it != boost::asio::buffer_sequence_end(buffers); ++it) {
        const boost::asio::const_buffer part = *it;
        body_.append(static_cast<const char*>(part.data()), part.size());
        num_bytes += part.size();
      }
      ec = {};
      return num_bytes;
    }

    void finish(boost::system::error_code& ec) { ec = {}; }

   private:
    value_type& body_;
  };
};

}  // namespace inflight::http_listener
