/*
 * `dlopen`, so that calls of libraries opened with RTLD_DEEPBIND are counted, too: such a library looks into libc
 * before it looks into what was preloaded. Before the first of them is opened, libc's own table of symbols leads from
 * the functions that are counted to where they lead everybody else. The allocator does the same, and says more:
 * crates/malloc/src/deepbind.rs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char names[][16] = {"malloc",        "calloc",   "realloc", "reallocarray", "posix_memalign",
                                 "aligned_alloc", "memalign", "valloc",  "pvalloc",      "free"};

struct view {
    int is_to_lead, is_behind_us;
    uintptr_t next_dlopen;
    uintptr_t first[COUNT(names)]; /* where everybody else's calls go */
};

/* The symbol that an object defines under a name. Source: the System V ABI's dynamic section and
 * GNU's hash table: number of buckets, first symbol, words of the filter, shift; filter; buckets; hashes. */
static ElfW(Sym) *defined(const struct dl_phdr_info *object, const char *name)
{
    const ElfW(Dyn) *entry = NULL;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    uintptr_t symbols = 0, strings = 0, table = 0;
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        /* The loader has put addresses there, but where the section is read-only. */
        uintptr_t place = entry->d_un.d_ptr + (entry->d_un.d_ptr < object->dlpi_addr ? object->dlpi_addr : 0);
        *(entry->d_tag == DT_SYMTAB     ? &symbols
          : entry->d_tag == DT_STRTAB   ? &strings
          : entry->d_tag == DT_GNU_HASH ? &table
                                        : &(uintptr_t){0}) = place;
    }
    if (!symbols || !strings || !table)
        return NULL;
    const uint32_t *head = (void *)table;
    const uint32_t *buckets = head + 4 + head[2] * (sizeof(ElfW(Addr)) / sizeof *head), *hashes = buckets + head[0];
    uint32_t wanted = 5381;
    for (const char *letter = name; *letter; letter++)
        wanted = wanted * 33 + (uint8_t)*letter;
    uint32_t index = head[0] ? buckets[wanted % head[0]] : 0;
    for (; index >= head[1]; index++) {
        ElfW(Sym) *symbol = (ElfW(Sym) *)symbols + index;
        if ((hashes[index - head[1]] | 1) == (wanted | 1) && symbol->st_shndx != SHN_UNDEF &&
            (symbol->st_info & 0xf) != STT_GNU_IFUNC && strcmp((const char *)strings + symbol->st_name, name) == 0)
            return symbol;
        if (hashes[index - head[1]] & 1)
            break;
    }
    return NULL;
}

/* The loaded part of an object that has an address. */
static const ElfW(Phdr) *segment_of(const struct dl_phdr_info *object, uintptr_t address)
{
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[i];
        if (header->p_type == PT_LOAD && address - object->dlpi_addr - header->p_vaddr < header->p_memsz)
            return header;
    }
    return NULL;
}

/* False where the kernel refuses: those calls stay uncounted. */
static int lead(const struct dl_phdr_info *object, const uintptr_t *to)
{
    uintptr_t *values[COUNT(names)] = {0}, first = UINTPTR_MAX, last = 0;
    for (size_t i = 0; i < COUNT(names); i++) {
        ElfW(Sym) *symbol = to[i] ? defined(object, names[i]) : NULL;
        uintptr_t place = symbol ? (uintptr_t)&symbol->st_value : 0;
        values[i] = (uintptr_t *)place;
        first = place && place < first ? place : first;
        last = place > last ? place : last;
    }
    const ElfW(Phdr) *segment = last ? segment_of(object, first) : NULL;
    if (segment == NULL)
        return 0;
    int protection = PROT_READ | (segment->p_flags & PF_W ? PROT_WRITE : 0) | (segment->p_flags & PF_X ? PROT_EXEC : 0);
    /* Aligned values do not lie across pages. */
    first &= ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    if (mprotect((void *)first, last + 1 - first, protection | PROT_WRITE) != 0)
        return 0;
    /* Who looks meanwhile finds the one function or the other. */
    for (size_t i = 0; i < COUNT(names); i++)
        if (values[i])
            atomic_store_explicit((_Atomic uintptr_t *)values[i], to[i] - object->dlpi_addr, memory_order_relaxed);
    mprotect((void *)first, last + 1 - first, protection);
    return 1;
}

static int visit(struct dl_phdr_info *object, size_t bytes, void *argument)
{
    (void)bytes;
    struct view *view = argument;
    if (view->is_behind_us && view->next_dlopen == 0) {
        ElfW(Sym) *next = defined(object, "dlopen");
        view->next_dlopen = next ? object->dlpi_addr + next->st_value : 0;
    }
    view->is_behind_us |= segment_of(object, (uintptr_t)names) != NULL;
    if (view->is_to_lead && defined(object, "gnu_get_libc_version")) {
        view->is_to_lead = !(view->is_behind_us && lead(object, view->first));
    } else if (view->is_to_lead) {
        for (size_t i = 0; i < COUNT(names); i++) {
            ElfW(Sym) *symbol = view->first[i] ? NULL : defined(object, names[i]);
            if (symbol)
                view->first[i] = object->dlpi_addr + symbol->st_value;
        }
    }
    /* Nothing behind it matters. */
    return view->next_dlopen != 0 && !view->is_to_lead;
}

static void *nowhere(const char *path, int mode)
{
    (void)path, (void)mode;
    return NULL;
}

/* Where `dlopen` goes on. */
__attribute__((used, visibility("hidden"))) uintptr_t before_dlopen(int mode)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    static _Atomic int is_led;
    static _Atomic uintptr_t known;
    /* A look takes the loader's lock, and a child that is forked meanwhile waits for that without end: so one look. */
    uintptr_t next = known;
    if (next && (is_led || !(mode & RTLD_DEEPBIND)))
        return next;
    struct view view = {0};
    if (mode & RTLD_DEEPBIND) {
        /* From now on libc's names lead here: what is behind us must have been found. */
        free(malloc(1));
        pthread_mutex_lock(&one_at_a_time);
        view.is_to_lead = !is_led;
    }
    dl_iterate_phdr(visit, &view);
    known = view.next_dlopen;
    if (mode & RTLD_DEEPBIND) {
        is_led = !view.is_to_lead;
        pthread_mutex_unlock(&one_at_a_time);
    }
    return view.next_dlopen ? view.next_dlopen : (uintptr_t)nowhere;
}

/* The next one finds by its return address who asks ($ORIGIN, RUNPATH): so we go there by a jump. */
__asm__(".globl dlopen\n.type dlopen, %function\ndlopen:\n\t.cfi_startproc\n\t"
#if defined(__x86_64__)
        "push %rdi\n\t.cfi_adjust_cfa_offset 8\n\tpush %rsi\n\t.cfi_adjust_cfa_offset 8\n\t"
        "sub $8, %rsp\n\t.cfi_adjust_cfa_offset 8\n\tmov %esi, %edi\n\tcall before_dlopen\n\t"
        "add $8, %rsp\n\t.cfi_adjust_cfa_offset -8\n\tpop %rsi\n\t.cfi_adjust_cfa_offset -8\n\t"
        "pop %rdi\n\t.cfi_adjust_cfa_offset -8\n\tjmp *%rax\n\t"
#elif defined(__aarch64__)
        "stp x0, x30, [sp, #-32]!\n\t.cfi_adjust_cfa_offset 32\n\t.cfi_rel_offset x30, 8\n\t"
        "str x1, [sp, #16]\n\tmov w0, w1\n\tbl before_dlopen\n\tmov x16, x0\n\tldr x1, [sp, #16]\n\t"
        "ldp x0, x30, [sp], #32\n\t.cfi_restore x30\n\t.cfi_adjust_cfa_offset -32\n\tbr x16\n\t"
#endif
        ".cfi_endproc\n.size dlopen, . - dlopen\n");
