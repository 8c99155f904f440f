// SPDX-License-Identifier: Apache-2.0
// Keys for S3, from the first place that has any: TRITON_CLOUD_CREDENTIAL_PATH, which stands in for
// all others; the environment; the profile of the shared files; a web identity (EKS); the
// container's service; the instance's (IMDSv2). Without any requests are not signed, as public
// buckets want it.
//
// Threads: one at a time.
#pragma once

#include <ctime>
#include <map>
#include <optional>
#include <string>

#include "object_store/address.h"
#include "object_store/http_message.h"
#include "object_store/options.h"
#include "object_store/signing.h"

namespace inflight::object_store {

class AwsCredentials {
 public:
  AwsCredentials(Address address, Environment environment)
      : address_(std::move(address)), environment_(std::move(environment)) {}

  // Kept until they are about to end. Errors name the place, never what stands there.
  Result<AwsKeys> Get(const Send& send);
  // What was found is asked for again by the next Get.
  void Forget() { keys_.reset(); }
  // After Get; of the configuration, else us-east-1.
  const std::string& region() const { return region_; }
  void SetRegion(const std::string& region) { region_ = region; }

 private:
  struct Found {
    AwsKeys keys;
    std::time_t expires = 0;  // 0: never
  };
  using MaybeFound = Result<std::optional<Found>>;
  using Profile = std::map<std::string, std::string>;

  Result<Found> Find(const Send& send);
  MaybeFound OfCloudFile();
  MaybeFound OfProfile(const std::string& name, bool is_named);
  Result<Profile> ReadProfile(const std::string& name);
  MaybeFound OfWebIdentity(const Send& send);
  MaybeFound OfContainer(const Send& send);
  MaybeFound OfInstance(const Send& send);
  static MaybeFound FromJson(const std::string& text, const std::string& where);
  void SetRegionOnce(const std::string& region);

  const Address address_;
  const Environment environment_;
  std::optional<Found> keys_;
  std::string region_;
};

}  // namespace inflight::object_store
