# Writes page_files.hpp: the files of page/ as string literals, so that the daemon is one file.
#   cmake -DFOLDER=... -DOUTPUT=... -P page.cmake
set(entries "/ index.html text/html" "/page.css page.css text/css" "/page.js page.js text/javascript")
set(lines "")
foreach(entry IN LISTS entries)
    string(REPLACE " " ";" fields "${entry}")
    list(GET fields 0 path)
    list(GET fields 1 name)
    list(GET fields 2 type)
    file(READ ${FOLDER}/${name} body)
    string(APPEND lines "    PageFile{\"${path}\", \"${type}; charset=utf-8\", R\"page(${body})page\"},\n")
endforeach()
file(WRITE ${OUTPUT}
"// Made by page.cmake of the files in page/.
#pragma once

#include <array>
#include <string_view>

namespace stacksaga::coordinator {

struct PageFile {
    std::string_view path;
    const char *content_type;
    std::string_view body;
};

inline constexpr std::array page_files{
${lines}};

} // namespace stacksaga::coordinator
")
