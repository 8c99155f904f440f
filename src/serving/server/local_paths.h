// SPDX-License-Identifier: Apache-2.0
// Messages about files, as they may be told to somebody who does not sit at this machine.
#pragma once

#include <string>
#include <string_view>

namespace inflight::serving {

// `message` with the last part of each absolute path alone: "/srv/models/m/1/config.json: cannot
// open" is "config.json: cannot open". A path begins a word or stands in quotes or brackets; it
// ends with these, before a colon, or with the word that has its last slash. In doubt more is left
// out.
std::string WithoutFolders(std::string_view message);

}  // namespace inflight::serving
