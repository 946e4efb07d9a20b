// tools/program/file_roles.h: owns the check that a command does not overwrite its inputs. add_output_option marks
// flags that name output files; any other value that names an existing file or folder counts as an input.
//
//   R1  an output is not an input: not the same file by any spelling, symbolic or hard link; not a file directly in an
//       input folder; not standard output's file
//   R2  two outputs are two files
//   R3  the same holds for an output's temporary name (PATH.partial, files/output_file.h)
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

// Checks the values of all parsed flags. Errors: violations of R1 to R3, with the flags' names.
Status check_file_roles(const CLI::App& app);

// A file that a command reads or writes, and its name in messages. An empty path: there is none.
struct NamedFile {
    std::string name;
    std::string path;
};
// The same check for files that are not named by flags.
// Several files of one name.
std::vector<NamedFile> named_files(const std::string& name, const std::vector<std::string>& paths);
Status check_file_roles(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs);

}  // namespace verbatim::tools
