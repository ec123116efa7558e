/* Included before every file of google tcmalloc (cargo xtask peers): the crate asks for TCMallocInternal* only, a library to
 * preload needs malloc itself, as tcmalloc/libc_override.h defines it. */
#undef TCMALLOC_INTERNAL_METHODS_ONLY
