// SPDX-License-Identifier: Apache-2.0
// Web pages of other origins that may read the server's answers (docs/reference/access.md, "Pages
// of other origins"; https://fetch.spec.whatwg.org/#http-cors-protocol). A page whose origin is not
// allowed gets the same answers without a header of CORS, so that its browser keeps them from it,
// and its preflight is refused with the option that would allow it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inflight/status.h"
#include "protocol/http_listener/http_message.h"

namespace inflight::http_listener {

// Values of --cors-origin.
class CrossOrigins {
 public:
  CrossOrigins() = default;  // none
  // Each is `*`, or scheme, name and port as browsers send them: "https://ui.example:8443".
  // kInvalidArgument names what is not.
  static Result<CrossOrigins> Make(std::vector<std::string> origins);

  bool is_any() const { return is_any_; }
  bool Names(std::string_view origin) const;  // by itself, not by `*`
  bool Allows(std::string_view origin) const { return is_any_ || Names(origin); }

 private:
  std::vector<std::string> origins_;
  bool is_any_ = false;
};

// A handler that answers pages of other origins as these rules say.
std::unique_ptr<HttpHandler> MakeAcrossOrigins(CrossOrigins origins,
                                               std::unique_ptr<HttpHandler> handler);

}  // namespace inflight::http_listener
