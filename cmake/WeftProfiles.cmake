# Profiles of real machines: src/mesh/profiles/NAME.json, built into the library as the bytes that they are, so that
# there is one place for a profile, and one reader. Sets WEFT_PROFILES_SOURCE.
file(GLOB WEFT_PROFILES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/mesh/profiles/*.json)
list(SORT WEFT_PROFILES) # names are looked up, and shown, in this order
set(arrays "")
set(names "")
set(texts "")
set(count 0)
foreach(f IN LISTS WEFT_PROFILES)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${f})
  get_filename_component(name ${f} NAME_WE)
  file(READ ${f} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n"
    bytes "${bytes}")
  string(APPEND arrays "static const unsigned char json_${count}[] = {\n${bytes}};\n")
  string(APPEND names "    \"${name}\",\n")
  string(APPEND texts "    {json_${count}, sizeof json_${count}},\n")
  math(EXPR count "${count} + 1")
endforeach()
set(WEFT_PROFILES_SOURCE ${CMAKE_BINARY_DIR}/generated/profiles.c)
file(CONFIGURE OUTPUT ${WEFT_PROFILES_SOURCE} CONTENT
"/* The profiles of src/mesh/profiles, by cmake/WeftProfiles.cmake. */
#include \"mesh/mesh_impl.h\"

@arrays@
const char *const weft__mesh_profile_names[] = {
@names@};
const struct weft__mesh_profile_text weft__mesh_profile_texts[] = {
@texts@};
const int weft__mesh_profile_count = @count@;
" @ONLY)
