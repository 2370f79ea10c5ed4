/* The fast path of next_id(), in C: FastPath, as in pure_path.py.
 *
 * It does what pure_path.py does in Python; allocator.py, which decides what comes next and publishes a TickRange, is
 * the same for both. Nothing here waits or decides.
 *
 * The state is one word: the last id. Ids never repeat, so whoever replaces the word by the next id, and only if it is
 * still the one that was read, knows that the range is still the one that was read, too. Under the GIL no other code runs
 * between two lines, except where a test clock is called. On free-threaded builds ids of a tick are taken by
 * compare-exchange; ticks and ranges change in a critical section.
 *
 * Each interpreter has a module of its own with types of its own; only constants are shared.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <limits.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

/* --- the word, and what was taken of it ------------------------------------------------------------------- */

#ifdef Py_GIL_DISABLED
#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELEASE)
/* a field of a range: it may be changing, and then the word has changed before */
#define FIELD(place) __atomic_load_n(&(place), __ATOMIC_RELAXED)
#define SET_FIELD(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELAXED)
#else
#ifndef Py_BEGIN_CRITICAL_SECTION
#define Py_BEGIN_CRITICAL_SECTION(object) {
#define Py_END_CRITICAL_SECTION() }
#endif
#define LOAD(place) (place)
#define STORE(place, value) ((place) = (value))
#define FIELD(place) (place)
#define SET_FIELD(place, value) ((place) = (value))
#endif

/* the word, where nothing is left to take */
#define SEALED (-1LL)

/* is_reset points to this as long as there is no range */
static const unsigned char NO = 0;

/* Replace the word if it is still last. Return whether it was. */
static inline int
exchange(long long *word, long long last, long long next)
{
#ifdef Py_GIL_DISABLED
    /* the fields were read before */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_compare_exchange_n(word, &last, next, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
#else
    if (*word != last)
        return 0;
    *word = next;
    return 1;
#endif
}

/* Return a list of count numbers, step apart, modulo 2**64. */
static PyObject *
as_list(unsigned long long first, unsigned long long step, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    Py_ssize_t i;
    for (i = 0; list != NULL && i < count; i++) {
        PyObject *number = PyLong_FromLongLong((long long)(first + (unsigned long long)i * step));
        if (number == NULL || PyList_SetItem(list, i, number) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* Write count numbers, step apart, modulo 2**64, to an array of int64 at any address. */
static void
write_to(char *place, unsigned long long first, unsigned long long step, Py_ssize_t count)
{
    Py_ssize_t i;
    for (i = 0; i < count; i++, first += step)
        memcpy(place + i * 8, &first, 8);
}

/* Slots of a module that an interpreter with a GIL of its own may import, from 3.12 on. Built for the ABI of 3.11, whose
   headers do not have these names. */
#define OWN_GIL_SLOT {3, (void *)2}
#ifdef Py_GIL_DISABLED
#define MODULE_SLOTS(exec) {OWN_GIL_SLOT, {Py_mod_gil, Py_MOD_GIL_NOT_USED}, {Py_mod_exec, exec}, {0, NULL}}
#else
#define MODULE_SLOTS(exec) {OWN_GIL_SLOT, {Py_mod_exec, exec}, {0, NULL}}
#endif

/* Return the module, without the first of its slots where Python does not know it. */
static PyObject *
init_module(struct PyModuleDef *def, PyModuleDef_Slot *slots)
{
    def->m_slots = Py_Version < 0x030C0000 ? slots + 1 : slots;
    return PyModuleDef_Init(def);
}

/* The state of one interpreter's module. */
typedef struct {
    PyTypeObject *fast_path_type;
    /* the generator of next_id(), or NULL; and what next_id() calls without one. Without the GIL, the only item of a list,
       which is read without a lock, or None */
    PyObject *bound, *unbound;
    PyObject *next_slow_name, *next_with_gene_name, *time_ns_name;
    /* time_ns of this module, which the clock of the system has */
    PyObject *system_time_ns;
} State;

typedef struct {
    PyObject_HEAD
    /* what next_id() reads comes first, in one cache line: the word, and the range as TickRange of core/lanes.py has it */
    long long last;
    long long epoch_ns, tick_ns, early_ns, sequence_mask;
    int timestamp_shift, sequence_shift;
    /* time_ns of a test clock; NULL for the system's */
    PyObject *now_ns;
    /* the byte that is 0 in a forked child whose copy was not reset yet */
    const volatile unsigned char *is_reset;
    /* for the next tick */
    long long limit_ns, low, spread, salt;
    /* about how many ids were made before the current tick, and which id of the tick was the first */
    long long made, first;
    /* the TickRange */
    PyObject *ticks;
    /* keeps the memory of is_reset in its place */
    Py_buffer is_reset_view;
    /* belongs to the module of this type, which keeps it alive */
    State *state;
} FastPath;

static struct PyModuleDef module_def;

/* Return about how many ids of its tick are made when last is the last one. */
static long long
count_of_tick(FastPath *path, long long last)
{
    return last == SEALED ? 0 : ((last - path->first) >> path->sequence_shift) + 1;
}

/* --- ranges: published, sealed, replaced -------------------------------------------------------------- */

/* Read *is_reset* from now on, a bytes-like object: one without bytes is never true. */
static int
set_is_reset(FastPath *path, PyObject *is_reset)
{
    if (path->is_reset_view.obj == is_reset)
        return 0;
    path->is_reset = &NO;
    PyBuffer_Release(&path->is_reset_view);
    if (PyObject_GetBuffer(is_reset, &path->is_reset_view, PyBUF_SIMPLE) < 0)
        return -1;
    if (path->is_reset_view.len > 0)
        path->is_reset = path->is_reset_view.buf;
    return 0;
}

static PyObject *
path_get_position(PyObject *self, void *unused)
{
    FastPath *path = (FastPath *)self;
    PyObject *ticks;
    long long last, made;
    (void)unused;
    Py_BEGIN_CRITICAL_SECTION(self);
    ticks = Py_XNewRef(path->ticks);
    last = LOAD(path->last);
    made = path->made + count_of_tick(path, last);
    Py_END_CRITICAL_SECTION();
    return Py_BuildValue("(NLL)", ticks != NULL ? ticks : Py_NewRef(Py_None), last, made);
}

/* What a TickRange says, parsed, with what it needs already acquired. */
typedef struct {
    long long first_id, early_ns, limit_ns, epoch_ms, tick_ms, low, sequence_mask, spread, salt;
    int timestamp_shift, sequence_shift;
    PyObject *is_reset;
} Range;

/* Do the test and the stores of _supersede(), between which no other code runs. Return 1, 0 if the range of old and its
   tick are not current, or -1 for an error. What was current is left in *before, to be released when all is stored. */
static int
compare_and_set(FastPath *path, PyObject *old, long long tick, PyObject *ticks, Range *new, PyObject **before)
{
    long long last;
    do {
        last = LOAD(path->last);
        if (path->ticks != old || (last == SEALED ? SEALED : last >> path->timestamp_shift) != tick)
            return 0;
        if (new->first_id != SEALED && set_is_reset(path, new->is_reset) < 0)
            return -1;
    } while (!exchange(&path->last, last, SEALED));
#ifdef Py_GIL_DISABLED
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
    path->made += count_of_tick(path, last);
    SET_FIELD(path->epoch_ns, new->epoch_ms * 1000000);
    SET_FIELD(path->tick_ns, new->tick_ms * 1000000);
    SET_FIELD(path->early_ns, new->early_ns);
    SET_FIELD(path->sequence_mask, new->sequence_mask);
    SET_FIELD(path->timestamp_shift, new->timestamp_shift);
    SET_FIELD(path->sequence_shift, new->sequence_shift);
    path->limit_ns = new->limit_ns;
    path->low = new->low;
    path->spread = new->spread;
    path->salt = new->salt;
    path->first = new->first_id;
    *before = path->ticks;
    path->ticks = Py_NewRef(ticks);
    STORE(path->last, new->first_id);
    return 1;
}

/* Use the clock of a range from now on; it is the same for all ranges of one path. */
static int
set_clock(FastPath *path, PyObject *clock)
{
    PyObject *now_ns = PyObject_GetAttr(clock, path->state->time_ns_name), *before = path->now_ns;
    if (now_ns == NULL)
        return -1;
    if (now_ns == path->state->system_time_ns)
        Py_CLEAR(now_ns);
    path->now_ns = now_ns;
    Py_XDECREF(before);
    return 0;
}

static PyObject *
path_supersede(PyObject *self, PyObject *args)
{
    FastPath *path = (FastPath *)self;
    PyObject *old, *ticks, *state, *clock, *before = NULL;
    Range new = {0};
    long long tick;
    int replaced;
    if (!PyArg_ParseTuple(args, "OLO!:_supersede", &old, &tick, &PyTuple_Type, &ticks) ||
        !PyArg_ParseTuple(ticks, "LLLLLLLiiLLOOO;a TickRange", &new.first_id, &new.early_ns, &new.limit_ns,
                          &new.epoch_ms, &new.tick_ms, &new.low, &new.sequence_mask, &new.timestamp_shift,
                          &new.sequence_shift, &new.spread, &new.salt, &new.is_reset, &clock, &state))
        return NULL;
    if (new.tick_ms < 1 || new.timestamp_shift < 0 || new.timestamp_shift > 62 || new.sequence_shift < 0 ||
        new.sequence_shift > 62 || new.spread < 0 || new.spread > new.sequence_mask >> new.sequence_shift ||
        (new.first_id < 1 && new.first_id != SEALED)) {
        PyErr_SetString(PyExc_ValueError, "not a TickRange");
        return NULL;
    }
    if (old == Py_None && set_clock(path, clock) < 0)
        return NULL;
    Py_BEGIN_CRITICAL_SECTION(self);
    replaced = compare_and_set(path, old == Py_None ? NULL : old, tick, ticks, &new, &before);
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(before);
    return replaced < 0 ? NULL : PyBool_FromLong(replaced);
}

/* --- ids ---------------------------------------------------------------------------------------------- */

/* Read a test clock, ns since 1970. Return 0, or -1 for an error. A time that does not fit, before 1678 or after 2262,
   is the earliest or latest that does, when no range has ids. */
static int
read_test_clock(FastPath *path, long long *now_ns)
{
    int overflow;
    /* the call may drop the clock */
    PyObject *clock = Py_NewRef(path->now_ns), *result = PyObject_CallNoArgs(clock);
    Py_DECREF(clock);
    if (result == NULL)
        return -1;
    *now_ns = PyLong_AsLongLongAndOverflow(result, &overflow);
    Py_DECREF(result);
    if (overflow)
        *now_ns = overflow < 0 ? LLONG_MIN : LLONG_MAX;
    return *now_ns == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Return the first sequence of a tick, for count ids. As first_sequence() of core/lanes.py and opening() of pure_path.py,
 * which say why. */
static inline long long
first_sequence(FastPath *path, long long last, long long tick, long long used, Py_ssize_t count)
{
    long long spread = path->spread, first = 0;
    int all_used = (last & path->sequence_mask) >> path->sequence_shift >= spread;
    if (!all_used || (used <= spread >> 2 && tick != (last >> path->timestamp_shift) + 1)) {
        unsigned long long hash = (unsigned long long)tick * 0x9E3779B97F4A7C15ULL + (unsigned long long)path->salt;
        first = (long long)((hash ^ hash >> 32) * 0xD6E8FEB86659FD93ULL >> 33) & (used > spread >> 2 ? spread >> 7 : spread);
    }
    /* a batch that fits the tick is not divided */
    return count <= spread + 1 - first ? first : 0;
}

/* Take up to count ids of a later tick than that of last, which the clock shows and the range allows. Return how many;
   0 if only the slow path can tell; -1 if the word changed meanwhile. */
static Py_ssize_t
open_tick(FastPath *path, long long last, long long now_ns, Py_ssize_t count, long long *first)
{
    Py_ssize_t taken = -1;
    Py_BEGIN_CRITICAL_SECTION(path);
    if (LOAD(path->last) == last) {
        /* before the epoch, if the difference that led here had no room in 64 bits */
        if (now_ns >= path->limit_ns || now_ns < path->epoch_ns || !*path->is_reset)
            taken = 0;
        else {
            long long tick = (now_ns - path->epoch_ns) / path->tick_ns, size = path->sequence_mask >> path->sequence_shift;
            long long low = tick << path->timestamp_shift | path->low, used = count_of_tick(path, last);
            if (path->spread) {
                long long begin = first_sequence(path, last, tick, used, count);
                low += begin << path->sequence_shift;
                size -= begin;
            }
            taken = count - 1 <= size ? count : (Py_ssize_t)size + 1;
            if (exchange(&path->last, last, low + ((long long)(taken - 1) << path->sequence_shift))) {
                path->made += used;
                path->first = *first = low;
            }
            else
                taken = -1;
        }
    }
    Py_END_CRITICAL_SECTION();
    return taken;
}

/* Read the clock, ns since 1970. Return 0, or -1 for an error. */
static inline Py_ALWAYS_INLINE int
read_clock(FastPath *path, long long *now_ns)
{
    struct timespec time;
    if (path->now_ns != NULL)
        return read_test_clock(path, now_ns);
    clock_gettime(CLOCK_REALTIME, &time);
    /* after 2262 it wraps around, to a wrong time like any other */
    *now_ns = (long long)(time.tv_sec * 1000000000ULL + time.tv_nsec);
    return 0;
}

/* Take up to count ids, one step apart, of the clock's tick. Return how many; 0 if only the slow path can tell; -1 for an
   error. Inlined, so that for one id there is no division. */
static inline Py_ALWAYS_INLINE Py_ssize_t
take(FastPath *path, Py_ssize_t count, long long *first)
{
    for (;;) {
        long long last, now_ns, since_ns, left;
        Py_ssize_t taken;
        if (read_clock(path, &now_ns) < 0)
            return -1;
        /* after the clock: the less there is between this and exchange(), the less often another thread comes in between */
        last = LOAD(path->last);
        if (last == SEALED || count < 1)
            return 0;
        /* unsigned, for a clock that shows any time */
        since_ns = (long long)((unsigned long long)now_ns - FIELD(path->epoch_ns) -
                               (last >> FIELD(path->timestamp_shift)) * FIELD(path->tick_ns));
        if (since_ns >= FIELD(path->tick_ns)) {
            taken = open_tick(path, last, now_ns, count, first);
            if (taken < 0)
                continue;
            return taken;
        }
        left = (~last & FIELD(path->sequence_mask)) >> FIELD(path->sequence_shift);
        if (since_ns < -FIELD(path->early_ns) || left == 0 || !*path->is_reset)
            /* even if another thread opened a later tick since the clock was read */
            return 0;
        taken = count <= left ? count : (Py_ssize_t)left;
        if (exchange(&path->last, last, last + ((long long)taken << FIELD(path->sequence_shift)))) {
            *first = last + (1LL << FIELD(path->sequence_shift));
            return taken;
        }
    }
}

static PyObject *
path_next_id(PyObject *self, PyObject *unused)
{
    long long id;
    Py_ssize_t taken = take((FastPath *)self, 1, &id);
    (void)unused;
    if (taken > 0)
        return PyLong_FromLongLong(id);
    return taken < 0 ? NULL : PyObject_CallMethodObjArgs(self, ((FastPath *)self)->state->next_slow_name, NULL);
}

/* next_id() with arguments, if there are any: Generator._next_with_gene() in Python. */
static PyObject *
path_next_id_with(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (count == 0 && names == NULL)
        return path_next_id(self, NULL);
    PyObject *id = NULL, *named = PyDict_New(), *given = PyTuple_New(count);
    PyObject *with = PyObject_GetAttr(self, ((FastPath *)self)->state->next_with_gene_name);
    if (named == NULL || given == NULL || with == NULL)
        goto end;
    for (Py_ssize_t i = 0; i < count; i++)
        PyTuple_SetItem(given, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_Size(names); i++)
        if (PyDict_SetItem(named, PyTuple_GetItem(names, i), args[count + i]) < 0)
            goto end;
    id = PyObject_Call(with, given, named);
end:
    Py_XDECREF(named);
    Py_XDECREF(given);
    Py_XDECREF(with);
    return id;
}

static PyObject *
path_iternext(PyObject *self)
{
    return path_next_id(self, NULL);
}

static PyObject *
path_id_now(PyObject *self, PyObject *unused)
{
    long long id;
    Py_ssize_t taken = take((FastPath *)self, 1, &id);
    (void)unused;
    return taken < 0 ? NULL : PyLong_FromLongLong(taken ? id : 0);
}

/* Take up to count ids as take(), and tell how far apart they are. */
static Py_ssize_t
take_many(FastPath *path, Py_ssize_t count, long long *first, long long *step)
{
    Py_ssize_t taken = take(path, count, first);
    /* the same in all ranges of one path: it is the layout's */
    *step = 1LL << FIELD(path->sequence_shift);
    return taken;
}

static PyObject *
path_take_now(PyObject *self, PyObject *argument)
{
    long long first = 0, step = 0;
    Py_ssize_t taken, count = PyLong_AsSsize_t(argument);
    if (count == -1 && PyErr_Occurred())
        return NULL;
    taken = take_many((FastPath *)self, count, &first, &step);
    if (taken < 0)
        return NULL;
    return as_list((unsigned long long)first, (unsigned long long)step, taken);
}

static PyObject *
path_fill_now(PyObject *self, PyObject *argument)
{
    long long first = 0, step = 0;
    Py_ssize_t taken;
    Py_buffer view;
    if (PyObject_GetBuffer(argument, &view, PyBUF_CONTIG) < 0)
        return NULL;
    taken = take_many((FastPath *)self, view.len / 8, &first, &step);
    write_to(view.buf, (unsigned long long)first, (unsigned long long)step, taken);
    PyBuffer_Release(&view);
    if (taken < 0)
        return NULL;
    return Py_BuildValue("(nLL)", taken, first, taken > 0 ? first + (long long)(taken - 1) * step : 0);
}

/* --- the types ----------------------------------------------------------------------------------------- */

/* Return the state of the module that defines FastPath, of which type is a subclass; NULL with an error set if not. */
static State *
state_of(PyTypeObject *type)
{
    for (; type != NULL; type = (PyTypeObject *)PyType_GetSlot(type, Py_tp_base)) {
        PyObject *module = PyType_GetModule(type);
        if (module == NULL)
            /* a class made in Python has none */
            PyErr_Clear();
        else if (PyModule_GetDef(module) == &module_def)
            return PyModule_GetState(module);
    }
    PyErr_SetString(PyExc_TypeError, "not a subclass of FastPath");
    return NULL;
}

static PyObject *
path_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    State *state = state_of(type);
    FastPath *path = state != NULL ? (FastPath *)alloc(type, 0) : NULL;
    (void)args;
    (void)kwargs;
    if (path == NULL)
        return NULL;
    path->state = state;
    path->last = SEALED;
    path->is_reset = &NO;
    return (PyObject *)path;
}

static int
path_traverse(PyObject *self, visitproc visit, void *arg)
{
    FastPath *path = (FastPath *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(path->ticks);
    Py_VISIT(path->now_ns);
    /* the view stays: before 3.12.7, Python crashes if it clears a memoryview before what has a buffer of it, and it
       clears none that seems to be in use elsewhere. It refers to memory only, so no cycle leads through it */
    return 0;
}

static int
path_clear(PyObject *self)
{
    FastPath *path = (FastPath *)self;
    /* from here on: whatever runs while the rest is released finds no ids */
    path->last = SEALED;
    path->is_reset = &NO;
    PyBuffer_Release(&path->is_reset_view);
    Py_CLEAR(path->now_ns);
    Py_CLEAR(path->ticks);
    return 0;
}

static void
path_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(self);
    path_clear(self);
    release(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(next_id_doc,
    "next_id($self, /, *, gene=None)\n--\n\n"
    "Make one id. Thread-safe, and safe in signal handlers and finalizers.\n\n"
    "Args:\n"
    "    gene: a key, int, str or bytes, of which the id has the gene: Layout.gene_of().\n\n"
    "Returns:\n"
    "    An int, 0 < id < 2**63: greater than every id that this generator made before, unless another\n"
    "    namespace or worker id came into use since: the clock went back, or the lease was lost.\n\n"
    "Raises:\n"
    "    LeaseExpired: the reservation ended while Redis did not reply.\n"
    "    LeaseLost: the lease was lost, and no other worker id could be claimed.\n"
    "    PoolExhausted, StoreUnavailable, LayoutMismatch: no worker id could be claimed.\n"
    "    ClockMovedBack, ClockSkewed, LayoutError: the clock shows a time that cannot be used.\n"
    "    GeneratorClosed: after close(), or suspend().\n\n"
    "Blocks:\n"
    "    at the first call, for the claim, as claim(); when the sequence of a tick is exhausted, until the\n"
    "    next tick; after the clock went back, for max_wait_ms at most; when the reservation ended, for one\n"
    "    round trip to Redis.");

static PyMethodDef path_methods[] = {
    {"next_id", (PyCFunction)(void (*)(void))path_next_id_with, METH_FASTCALL | METH_KEYWORDS, next_id_doc},
    {"_id_now", path_id_now, METH_NOARGS, "Take an id of the clock's tick; 0 if only the slow path can make one."},
    {"_take_now", path_take_now, METH_O, "Take up to count ids of the clock's tick; return a list."},
    {"_fill_now", path_fill_now, METH_O, "Write ids of the clock's tick into a buffer of int64; return how many, the first and the last."},
    {"_supersede", path_supersede, METH_VARARGS,
     "Replace the current TickRange by a new one and take its first id; False if old and tick are not current."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef path_getset[] = {
    {"_position", path_get_position, NULL, "The current TickRange, the last id (-1: sealed), and ids made.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot path_slots[] = {
    {Py_tp_doc, "Take ids of the current range of ticks."},
    {Py_tp_new, path_new},
    {Py_tp_dealloc, path_dealloc},
    {Py_tp_traverse, path_traverse},
    {Py_tp_clear, path_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, path_iternext},
    {Py_tp_methods, path_methods},
    {Py_tp_getset, path_getset},
    {0, NULL},
};

static PyType_Spec fast_path_spec = {
    "snowredis.snowflake.ids._fastpath.FastPath",
    sizeof(FastPath),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    path_slots,
};

/* --- the generator of the process ---------------------------------------------------------------------- */

#ifdef Py_GIL_DISABLED
/* Return the generator that is bound, or NULL. */
static inline PyObject *
get_bound(State *state)
{
    /* no list: the module was cleared, at the end of the interpreter */
    PyObject *bound = state->bound != NULL ? PyList_GetItemRef(state->bound, 0) : NULL;
    if (bound == Py_None)
        Py_CLEAR(bound);
    return bound;
}

/* Bind a generator or None; return the one before, or NULL. */
static PyObject *
swap_bound(State *state, PyObject *bound)
{
    PyObject *before = get_bound(state);
    if (state->bound != NULL)
        PyList_SetItem(state->bound, 0, Py_NewRef(bound));
    return before;
}
#else
static inline PyObject *
get_bound(State *state)
{
    return Py_XNewRef(state->bound);
}

static PyObject *
swap_bound(State *state, PyObject *bound)
{
    PyObject *before = state->bound;
    state->bound = bound == Py_None ? NULL : Py_NewRef(bound);
    return before;
}
#endif

static PyObject *
process_next_id(PyObject *module, PyObject *unused)
{
    State *state = PyModule_GetState(module);
    /* a reference, since a call may bind another generator */
    PyObject *bound = get_bound(state), *unbound, *id;
    (void)unused;
    if (bound != NULL) {
        /* bind() has checked its type: after a pause, each thing that is looked at costs as much as the clock */
        id = path_next_id(bound, NULL);
        Py_DECREF(bound);
        return id;
    }
    Py_BEGIN_CRITICAL_SECTION(module);
    unbound = Py_XNewRef(state->unbound);
    Py_END_CRITICAL_SECTION();
    if (unbound == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "next_id() was called before bind()");
        return NULL;
    }
    id = PyObject_CallNoArgs(unbound);
    Py_DECREF(unbound);
    return id;
}

static PyObject *
process_bind(PyObject *module, PyObject *args)
{
    State *state = PyModule_GetState(module);
    PyObject *bound, *unbound, *before[2];
    if (!PyArg_ParseTuple(args, "OO:bind", &bound, &unbound))
        return NULL;
    if (bound != Py_None && !PyObject_TypeCheck(bound, state->fast_path_type)) {
        PyErr_SetString(PyExc_TypeError, "bind() takes a FastPath or None, and a callable");
        return NULL;
    }
    Py_BEGIN_CRITICAL_SECTION(module);
    before[0] = swap_bound(state, bound);
    before[1] = state->unbound;
    state->unbound = Py_NewRef(unbound);
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(before[0]);
    Py_XDECREF(before[1]);
    Py_RETURN_NONE;
}

static PyObject *
system_time_ns(PyObject *module, PyObject *unused)
{
    struct timespec time;
    (void)module;
    (void)unused;
    clock_gettime(CLOCK_REALTIME, &time);
    return PyLong_FromLongLong((long long)(time.tv_sec * 1000000000ULL + time.tv_nsec));
}

static PyMethodDef module_methods[] = {
    {"time_ns", system_time_ns, METH_NOARGS,
     "time_ns($module, /)\n--\n\nReturn the time of the system, ns since 1970: time.time_ns(), which a test may freeze."},
    {"next_id", process_next_id, METH_NOARGS,
     "next_id($module, /)\n--\n\nMake one id with the generator of this process. See Generator.next_id()."},
    {"bind", process_bind, METH_VARARGS,
     "Let next_id() make ids with a generator, or call a function if the generator is None."},
    {NULL, NULL, 0, NULL},
};

/* --- the module ---------------------------------------------------------------------------------------- */

static int
module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
#ifdef Py_GIL_DISABLED
    state->bound = Py_BuildValue("[O]", Py_None);
    if (state->bound == NULL)
        return -1;
#endif
    state->system_time_ns = PyObject_GetAttrString(module, "time_ns");
    state->next_slow_name = PyUnicode_InternFromString("_next_slow");
    state->next_with_gene_name = PyUnicode_InternFromString("_next_with_gene");
    state->time_ns_name = PyUnicode_InternFromString("time_ns");
    state->fast_path_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &fast_path_spec, NULL);
    if (state->system_time_ns == NULL || state->next_slow_name == NULL || state->next_with_gene_name == NULL ||
        state->time_ns_name == NULL || state->fast_path_type == NULL)
        return -1;
    return PyModule_AddObjectRef(module, "FastPath", (PyObject *)state->fast_path_type);
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->fast_path_type);
    Py_VISIT(state->bound);
    Py_VISIT(state->unbound);
    Py_VISIT(state->system_time_ns);
    return 0;
}

static int
module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->bound);
    Py_CLEAR(state->unbound);
    Py_CLEAR(state->fast_path_type);
    Py_CLEAR(state->system_time_ns);
    Py_CLEAR(state->next_slow_name);
    Py_CLEAR(state->next_with_gene_name);
    Py_CLEAR(state->time_ns_name);
    return 0;
}

static void
module_free(void *module)
{
    module_clear(module);
}

static PyModuleDef_Slot module_slots[] = MODULE_SLOTS(module_exec);

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "snowredis.snowflake.ids._fastpath",
    .m_doc = "The fast path of next_id(), in C. See fast_path.py.",
    .m_size = sizeof(State),
    .m_methods = module_methods,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC
PyInit__fastpath(void)
{
    return init_module(&module_def, module_slots);
}
