// SPDX-License-Identifier: Apache-2.0
// A bucket, or a folder in one, that is listed and read. What may pass is tried again, with delays
// that double: no connection, transfers that break off or hardly move, statuses 408, 429 and 5xx.
// Reads go on where they broke off. Credentials that ended are asked for anew, once a request.
//
// Threads: any; each brings a client of its own.
// Errors:  have the store's own name and message, without the address. kNotFound,
// kPermission-
//          Denied, kUnauthenticated as the store says; kAborted where an object is another than in
//          the listing; kUnavailable where all attempts failed.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "object_store/address.h"
#include "object_store/http_client.h"
#include "object_store/options.h"
#include "object_store/service.h"

namespace inflight::object_store {

class Store {
 public:
  // Asks nothing of the store yet. kInvalidArgument where the settings of the environment are
  // wrong, kFailedPrecondition without libcurl.
  static Result<std::shared_ptr<Store>> Open(const Address& address, Options options);

  const Address& address() const { return address_; }
  const Options& options() const { return options_; }
  Result<std::unique_ptr<HttpClient>> MakeClient() const;

  // Of the address's own folder, or one below it. At most a million objects.
  Result<Listing> List(HttpClient& client, const std::string& folder, bool is_recursive);

  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  // Gives the bytes in order to `sink`; whether the object's digest is about its bytes.
  Result<bool> Read(HttpClient& client, const Object& object, Range range, const BodySink& sink);
  // Of the first part of an upload in parts; 0 where that cannot be told.
  uint64_t PartBytes(HttpClient& client, const Object& object);

 private:
  Store(Address address, Options options, std::unique_ptr<Service> service)
      : address_(std::move(address)), options_(std::move(options)), service_(std::move(service)) {}

  // Counts what failed in a row.
  struct Attempts {
    int failed = 0;
    int num_changes = 0;     // of the service's mind, that this request has followed
    uint64_t used_mind = 0;  // that it was sent with
  };
  // What follows an answer or its lack: OK to ask again (after a delay), or the error.
  Status AfterFailure(const Result<HttpResponse>& response, Attempts& attempts);
  Result<HttpResponse> SendOnce(HttpClient& client, HttpRequest request, const BodySink& sink,
                                Attempts& attempts);
  Result<HttpResponse> Ask(HttpClient& client, const HttpRequest& request);
  Status Refused(const HttpResponse& response) const;
  Status Wait(int failed, const std::string& retry_after) const;

  const Address address_;
  const Options options_;
  // Whether the request is worth sending with other credentials, or to another region.
  bool IsWorthAChange(const HttpResponse& response, const std::string& code, Attempts& attempts);

  std::mutex mutex_;   // of the service's credentials, and of the client that asks for them
  uint64_t mind_ = 0;  // counts what was changed in it, so that of many requests one changes it
  const std::unique_ptr<Service> service_;
  std::unique_ptr<HttpClient> credentials_client_;
};

}  // namespace inflight::object_store
