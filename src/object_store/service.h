// SPDX-License-Identifier: Apache-2.0
// What is S3's, Google's or Azure's own: how requests for listings and bytes look, how they are
// authorised, what answers say. Nothing here sends them a second time; that is the store's
// business.
//
// Threads: ListRequest, ReadRequest and the readers of answers from any; those that are about
//          credentials one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "object_store/address.h"
#include "object_store/http_message.h"
#include "object_store/options.h"

namespace inflight::object_store {

struct Object {
  std::string key;
  uint64_t size = 0;
  std::string version{};  // other bytes have another one: ETag or generation
  std::string md5{};      // bytes; empty: the store does not say it
  std::optional<uint32_t> crc32c{};
  int num_parts = 0;  // of an upload in parts to S3, whose ETag is made of theirs; 0: in one
};

struct Listing {
  std::vector<Object> objects;
  std::vector<std::string> folders;  // whole keys, without the slash at the end
};

struct StoreError {
  std::string code;  // the store's own name for it: "NoSuchBucket"
  std::string message;
};

class Service {
 public:
  virtual ~Service() = default;

  // A page of all objects below `folder` ("" is the bucket), or of those right in it and the
  // folders beside them. `page`: empty for the first.
  virtual HttpRequest ListRequest(const std::string& folder, bool is_recursive,
                                  const std::string& page) const = 0;
  // Adds to the listing, and gives the next page; empty: that was the last.
  virtual Result<std::string> ReadPage(const std::string& body, Listing& listing) const = 0;

  // Refuses to answer, by status 412 or 404, when the object is another meanwhile.
  virtual HttpRequest ReadRequest(const Object& object) const = 0;
  virtual std::string RangeHeader() const { return "range"; }
  // Whether what the listing says of the object's digest is about its bytes, by the answer to a
  // read.
  virtual bool HasDigest(const HttpResponse&) const { return true; }
  // Of S3: asks for the first part of an object, whose length the other parts have too.
  virtual std::optional<HttpRequest> PartRequest(const Object&) const { return std::nullopt; }

  virtual Status Authorize(const Send& send, HttpRequest& request) = 0;
  // The credentials were refused: others are looked for by the next Authorize.
  virtual void ForgetCredentials() = 0;
  // Whether the service is asked in another way from now on, because of what it answered.
  virtual bool Adapt(const HttpResponse&) { return false; }
  virtual StoreError ErrorOf(const HttpResponse& response) const = 0;
};

std::unique_ptr<Service> MakeS3(const Address& address, const Environment& environment);
std::unique_ptr<Service> MakeGs(const Address& address, const Environment& environment);
// kInvalidArgument where the settings of the environment contradict the address.
Result<std::unique_ptr<Service>> MakeAs(const Address& address, const Environment& environment);

// The first of <Code> and <Message> of an answer in XML.
StoreError ErrorOfXml(const std::string& body);

}  // namespace inflight::object_store
