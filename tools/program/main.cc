#include "tools/program/cli.h"

int main(int argc, char** argv) { return verbatim::tools::run_program(argc, argv); }
