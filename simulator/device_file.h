// simulator/device_file.h: reads a device file: JSON with the fields of simulator/device.h. For every one of them
// `sources` says where it comes from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "simulator/device.h"

namespace verbatim {

// `name_or_path`: one of device_names(), or a file.
Result<Device> read_device(const std::string& name_or_path);
Result<Device> parse_device(std::string_view text, const std::string& path);
std::vector<std::string> device_names();
// The paths of its measured tables.
std::vector<std::string> table_files(const Device& device);

}  // namespace verbatim
