// SPDX-License-Identifier: Apache-2.0
// Regions of shared memory (docs/reference/protocol/http.md, "Regions").
#include "serving/memory/shared_memory.h"

#include <string>
#include <utility>

#include "base/base64.h"
#include "base/status_macros.h"
#include "json/json_reader.h"
#include "json/json_writer.h"
#include "protocol/kserve/http/endpoints.h"
#include "protocol/kserve/http/response.h"

namespace inflight::kserve_http {
namespace {

using http_listener::HttpResponse;
using json::Value;
using serving::RegionKind;

serving::Registrant RegistrantOf(const http_listener::HttpRequest& request) {
  return serving::RegistrantAt(request.client, request.caller.get());
}

Status NoField(std::string_view field) {
  return InvalidArgument("Shared memory register request has no '" + std::string(field) +
                         "' field");
}

Status RegisterSystem(serving::SharedMemory& memory, const std::string& name,
                      const http_listener::HttpRequest& request) {
  ASSIGN_OR_RETURN(const Value root, Value::Parse(*request.body));
  const auto [key, offset, byte_size] = root.Pick<3>({"key", "offset", "byte_size"});
  serving::SharedRegion region{.name = name, .key = {}};
  if (!key) return NoField("key");
  ASSIGN_OR_RETURN(region.key, key->AsString());
  if (offset) {
    ASSIGN_OR_RETURN(region.offset, offset->AsUint());
  }
  if (!byte_size) return NoField("byte_size");
  ASSIGN_OR_RETURN(region.byte_size, byte_size->AsUint());
  return memory.Register(std::move(region), RegistrantOf(request));
}

Status RegisterCuda(serving::SharedMemory& memory, const std::string& name,
                    const http_listener::HttpRequest& request) {
  ASSIGN_OR_RETURN(const Value root, Value::Parse(*request.body));
  const auto [handle, device, byte_size] = root.Pick<3>({"raw_handle", "device_id", "byte_size"});
  serving::SharedRegion region{.name = name, .key = {}};
  if (!handle) return NoField("raw_handle");
  const auto [encoded] = handle->Pick<1>({"b64"});
  if (!encoded) return NoField("b64");
  ASSIGN_OR_RETURN(const std::string text, encoded->AsString());
  if (!byte_size) return NoField("byte_size");
  ASSIGN_OR_RETURN(region.byte_size, byte_size->AsUint());
  if (!device) return NoField("device_id");
  ASSIGN_OR_RETURN(region.device_id, device->AsInt());
  constexpr size_t kHandleBytes = 64;  // of cudaIpcMemHandle_t
  const auto bytes = DecodeBase64(text);
  if (!bytes || bytes->size() != kHandleBytes) {
    return InvalidArgument("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t");
  }
  return memory.RegisterCuda(std::move(region), *bytes, RegistrantOf(request));
}

}  // namespace

template <RegionKind kKind>
HttpResponse HandleSharedMemoryStatus(const Context& context, const Route& route,
                                      const http_listener::HttpRequest& request) {
  const auto own = context.server.shared_memory().Of(IdentityOf(request.caller));
  const auto regions = own.Find(kKind, route.region);
  if (!regions.ok()) return Error(regions.status());
  std::string body;
  json::Writer out(body);
  out.BeginArray();
  for (const serving::SharedRegion& region : *regions) {
    out.BeginObject();
    out.Key("name").String(region.name);
    if (region.device_id) {
      out.Key("device_id").Int(*region.device_id);
    } else {
      out.Key("key").String(region.key);
      out.Key("offset").Uint(region.offset);
    }
    out.Key("byte_size").Uint(region.byte_size);
    out.EndObject();
  }
  out.EndArray();
  return Answer(200, kJson, std::move(body));
}

template <RegionKind kKind>
HttpResponse HandleSharedMemoryRegister(const Context& context, const Route& route,
                                        const http_listener::HttpRequest& request) {
  serving::SharedMemory& memory = context.server.shared_memory();
  if (const Status status = memory.CheckAllowed(RegistrantOf(request)); !status.ok())
    return Error(status);
  constexpr bool kIsCuda = kKind == RegionKind::kCuda;
  if (route.region.empty()) {
    return Error(InvalidArgument("'region name' is necessary to register " +
                                 std::string(kIsCuda ? "cuda" : "system") +
                                 " shared memory region"));
  }
  return Done(kIsCuda ? RegisterCuda(memory, route.region, request)
                      : RegisterSystem(memory, route.region, request));
}

template <RegionKind kKind>
HttpResponse HandleSharedMemoryUnregister(const Context& context, const Route& route,
                                          const http_listener::HttpRequest& request) {
  serving::SharedMemory& memory = context.server.shared_memory();
  return Done(memory.Unregister(kKind, route.region, RegistrantOf(request)));
}

template Reply HandleSharedMemoryStatus<RegionKind::kSystem>;
template Reply HandleSharedMemoryStatus<RegionKind::kCuda>;
template Reply HandleSharedMemoryRegister<RegionKind::kSystem>;
template Reply HandleSharedMemoryRegister<RegionKind::kCuda>;
template Reply HandleSharedMemoryUnregister<RegionKind::kSystem>;
template Reply HandleSharedMemoryUnregister<RegionKind::kCuda>;

}  // namespace inflight::kserve_http
