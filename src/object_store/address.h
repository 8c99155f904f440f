// SPDX-License-Identifier: Apache-2.0
// Addresses of folders in object stores (docs/reference/object-stores.md, "Addresses"):
//
//   s3://bucket/path   s3://host:port/bucket/path   s3://https://host:port/bucket/path
//   gs://bucket/path   as://account/container/path
//
// Slashes that follow each other are one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "inflight/status.h"

namespace inflight::object_store {

enum class Kind : uint8_t { kS3, kGs, kAs };

std::string_view SchemeOf(Kind kind);   // "s3://"
std::string_view ServiceOf(Kind kind);  // "S3", "GCS", "AS", as Triton's messages have it

struct Address {
  Kind kind = Kind::kS3;
  std::string text;      // as it was given; credentials are chosen by it
  std::string endpoint;  // "http://host:port"; empty: the service's own
  std::string account;   // of as:// alone
  std::string bucket;    // as:// calls it a container
  std::string prefix;    // of keys, without a slash at either end; empty: the whole bucket
};

// Whether the text begins as an address does; it may be a wrong one.
bool IsAddress(std::string_view text);

// kInvalidArgument says what is wrong with it.
Result<Address> ParseAddress(std::string_view text);

// "a/b" in "p" is "p/a/b", in "" itself.
std::string Join(std::string_view prefix, std::string_view name);

}  // namespace inflight::object_store
