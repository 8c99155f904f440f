// SPDX-License-Identifier: Apache-2.0
// A request body for Boost.Beast that grows with the bytes that arrive: a large Content-Length
// alone allocates nothing, unlike with http::string_body. not_enough_memory where it cannot grow.
#pragma once

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <cstdint>
#include <new>
#include <optional>
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
      if (length) length_ = static_cast<size_t>(*length);
      const bool has_room = Reserve(std::min(length.value_or(0), kMaxFirstBytes));
      ec = has_room ? boost::system::error_code()
                    : make_error_code(boost::system::errc::not_enough_memory);
    }

    template <class ConstBufferSequence>
    size_t put(const ConstBufferSequence& buffers, boost::system::error_code& ec) {
      size_t num_bytes = 0;
      for (auto it = boost::asio::buffer_sequence_begin(buffers);
           it != boost::asio::buffer_sequence_end(buffers); ++it) {
        const boost::asio::const_buffer part = *it;
        if (body_.size() + part.size() > body_.capacity() &&
            !Reserve(CapacityFor(body_, part.size(), length_))) {
          ec = make_error_code(boost::system::errc::not_enough_memory);
          return num_bytes;
        }
        body_.append(static_cast<const char*>(part.data()), part.size());
        num_bytes += part.size();
      }
      ec = {};
      return num_bytes;
    }

    void finish(boost::system::error_code& ec) { ec = {}; }

   private:
    // reserve() of a string that has something takes twice its capacity, if less is asked for.
    // False where there is no memory.
    bool Reserve(size_t capacity) try {
      value_type grown;
      grown.reserve(capacity);
      grown.append(body_);
      body_.swap(grown);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }

    value_type& body_;
    std::optional<size_t> length_;
  };

  static constexpr uint64_t kMaxFirstBytes = 256 * 1024;

  // What `body` takes once at most `more` bytes follow, of `length` in all where that is known:
  // twice what it takes now when it has to grow, but not more than its length.
  static size_t CapacityFor(const value_type& body, size_t more, std::optional<size_t> length) {
    const size_t size = body.size() + more;
    if (size <= body.capacity()) return body.capacity();
    const size_t doubled = std::max(size, 2 * body.capacity());
    return length ? std::max(std::min(doubled, *length), body.capacity()) : doubled;
  }
};

}  // namespace inflight::http_listener
