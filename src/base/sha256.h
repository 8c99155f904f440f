// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4) of bytes that come in parts, over OpenSSL.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace inflight {

// Threads: one object belongs to one thread.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Add(std::span<const std::byte> bytes);
  void Add(std::string_view text) { Add(std::as_bytes(std::span(text))); }
  std::string End();  // the 32 bytes, once

 private:
  struct Context;
  const std::unique_ptr<Context> context_;
};

}  // namespace inflight
