// tools/program/file_roles.h: owns the check that a command does not write over what it reads. Which flags name files
// that are written is said where they are added (add_output_option); any other value that names a file or a folder that
// exists is taken for an input.
//
//   R1  an output is no input: not the file itself, by whatever spelling, symbolic or hard link; no file directly in a
//       folder that is an input; not standard output's file
//   R2  two outputs are two files
//   R3  nor is the name that an output has until it is complete (PATH.partial, files/output_file.h)
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace verbatim::tools {

// A flag that names a file to write; --help shows it as OUTFILE.
CLI::Option* add_output_option(CLI::App& command, const std::string& flag, std::string& path,
                               const std::string& description);

// All values of the flags that were parsed. Errors: R1 to R3, with the flags' names.
Status check_file_roles(const CLI::App& app);

// A file that a command reads or writes, and what messages call it. An empty path: there is none.
struct NamedFile {
    std::string name;
    std::string path;
};
// The same for files that flags do not name.
Status check_file_roles(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs);

}  // namespace verbatim::tools
