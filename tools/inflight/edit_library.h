// SPDX-License-Identifier: Apache-2.0
// libedit, loaded when a terminal is first read: a program that talks with none does not have it.
#pragma once

#include <histedit.h>

namespace inflight::tool {

struct EditCalls {
  decltype(&el_init) init = nullptr;
  decltype(&el_end) end = nullptr;
  decltype(&el_gets) gets = nullptr;
  decltype(&el_set) set = nullptr;
  decltype(&el_get) get = nullptr;
  decltype(&::history_init) history_init = nullptr;
  decltype(&::history_end) history_end = nullptr;
  decltype(&::history) history = nullptr;
};

// Of the whole process, for good; null where the library (package libedit2) is not there.
const EditCalls* LoadEdit();

}  // namespace inflight::tool
