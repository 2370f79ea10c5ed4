/* The fast path of next_id(), in C: fast_path.py's FastPath, and the ids of one block.
 *
 * It does what fast_path.py does in Python; id_allocator.py, which decides what comes next and publishes
 * it, is the same for both. Nothing here waits or decides.
 *
 * Under the GIL no other code runs between two lines, except where a test clock is called. On
 * free-threaded builds the window is read in a critical section, and ids are taken by compare-exchange,
 * so that a block that was just sealed gives nothing to a thread that has read it already.
 *
 * Each interpreter has a module of its own with types of its own; only constants are shared.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <limits.h>
#include <string.h>
#include <time.h>

#ifdef Py_GIL_DISABLED
#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELEASE)
#else
#ifndef Py_BEGIN_CRITICAL_SECTION
#define Py_BEGIN_CRITICAL_SECTION(object) {
#define Py_END_CRITICAL_SECTION() }
#endif
#define LOAD(place) (place)
#define STORE(place, value) ((place) = (value))
#endif

/* --- the ids of one block: next, next + step, ... below stop ------------------------------------------- */

typedef struct {
    PyObject_HEAD
    long long next, stop, step;
} Ids;

/* The state of one interpreter's module. */
typedef struct {
    PyTypeObject *ids_type, *fast_path_type;
    PyObject *next_slow_name;
    /* time.time, of fast_path.py's and id_allocator.py's blocks on the system's clock */
    PyObject *system_time;
} State;

/* Take up to count ids; return how many, and the first of them. Inlined, so that for one id there is no division. */
static inline Py_ALWAYS_INLINE Py_ssize_t
take(Ids *ids, Py_ssize_t count, long long *first)
{
    long long next = LOAD(ids->next);
    for (;;) {
        Py_ssize_t taken = count;
        if (count < 1 || next >= ids->stop)
            return 0;
        if (count > 1 && (ids->stop - 1 - next) / ids->step < count - 1)
            taken = (Py_ssize_t)((ids->stop - 1 - next) / ids->step + 1);
#ifdef Py_GIL_DISABLED
        if (!__atomic_compare_exchange_n(&ids->next, &next, next + taken * ids->step, 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_ACQUIRE))
            continue;
#else
        ids->next = next + taken * ids->step;
#endif
        *first = next;
        return taken;
    }
}

static Ids *
make_ids(PyTypeObject *type, long long next, long long stop, long long step)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Ids *ids = (Ids *)alloc(type, 0);
    if (ids != NULL) {
        ids->next = next;
        ids->stop = stop;
        ids->step = step;
    }
    return ids;
}

static PyObject *
ids_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    long long next, stop, step;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "LLL:Ids", &next, &stop, &step))
        return NULL;
    if (next < 0 || step < 1 || step > stop + 1) {
        PyErr_SetString(PyExc_ValueError, "Ids(next, stop, step): 0 <= next, 1 <= step <= stop + 1");
        return NULL;
    }
    return (PyObject *)make_ids(type, next, stop, step);
}

static void
ids_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *
ids_iternext(PyObject *self)
{
    long long id;
    return take((Ids *)self, 1, &id) ? PyLong_FromLongLong(id) : NULL;
}

static PyObject *
ids_length_hint(PyObject *self, PyObject *unused)
{
    Ids *ids = (Ids *)self;
    long long next = LOAD(ids->next);
    (void)unused;
    return PyLong_FromLongLong(next < ids->stop ? (ids->stop - next + ids->step - 1) / ids->step : 0);
}

static PyObject *
ids_exhaust(PyObject *self, PyObject *unused)
{
    (void)unused;
    STORE(((Ids *)self)->next, ((Ids *)self)->stop);
    Py_RETURN_NONE;
}

static PyObject *
ids_copy(PyObject *self, PyObject *unused)
{
    Ids *ids = (Ids *)self;
    (void)unused;
    return (PyObject *)make_ids(Py_TYPE(self), LOAD(ids->next), ids->stop, ids->step);
}

static PyMethodDef ids_methods[] = {
    {"__length_hint__", ids_length_hint, METH_NOARGS, "Return how many ids are left."},
    {"__copy__", ids_copy, METH_NOARGS, "Return another iterator of the same ids, as a clone of a machine has it."},
    {"exhaust", ids_exhaust, METH_NOARGS, "Remove all ids, also for a thread that has read the block already."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot ids_slots[] = {
    {Py_tp_doc, "The ids of one block: next, next + step, ... below stop."},
    {Py_tp_new, ids_new},
    {Py_tp_dealloc, ids_dealloc},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, ids_iternext},
    {Py_tp_methods, ids_methods},
    {0, NULL},
};

static PyType_Spec ids_spec = {"snowredis.runtime._fastpath.Ids", sizeof(Ids), 0, Py_TPFLAGS_DEFAULT, ids_slots};

/* --- the current block -------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    /* what next_id() reads comes first, in one cache line */
    Ids *ids;
    long long start_ns, end_ns;
    /* a test clock; NULL for the system's */
    PyObject *now;
    /* the byte that is 0 in a forked child whose copy was not reset yet */
    const volatile unsigned char *alive;
    /* for a test clock: two doubles next to each other may have the same ns */
    double start_s, end_s;
    /* a Published of fast_path.py, which keeps its block (start, end, ids, alive, now) */
    PyObject *published;
    /* keeps alive in its place */
    Py_buffer alive_view;
    /* of the module that the type belongs to, which keeps it */
    State *state;
} FastPath;

static struct PyModuleDef module_def;
static const unsigned char NO = 0;

static long long
to_ns(double seconds)
{
    double ns = seconds * 1e9;
    /* what does not fit is after the year 2262, or no time at all */
    return ns > -9.2e18 && ns < 9.2e18 ? (long long)ns : ns > 0 ? LLONG_MAX : LLONG_MIN;
}

/* Read alive from now on, a bytes-like object: of no bytes, it is never true. */
static int
set_alive(FastPath *path, PyObject *alive)
{
    if (path->alive_view.obj == alive)
        return 0;
    path->alive = &NO;
    PyBuffer_Release(&path->alive_view);
    if (PyObject_GetBuffer(alive, &path->alive_view, PyBUF_SIMPLE) < 0)
        return -1;
    if (path->alive_view.len > 0)
        path->alive = path->alive_view.buf;
    return 0;
}

static PyObject *
path_get_published(PyObject *self, void *unused)
{
    PyObject *published;
    (void)unused;
    Py_BEGIN_CRITICAL_SECTION(self);
    published = Py_XNewRef(((FastPath *)self)->published);
    Py_END_CRITICAL_SECTION();
    if (published == NULL)
        PyErr_SetString(PyExc_AttributeError, "_published");
    return published;
}

/* Make the block of a Published the current one. */
static int
set_block(FastPath *path, PyObject *published)
{
    PyObject *ids, *alive, *now, *state, *successor;
    double start_s, end_s;
    if (!PyArg_ParseTuple(published, "(ddO!OO)OO;a Published is ((start, end, Ids, alive, now), state, successor)",
                          &start_s, &end_s, path->state->ids_type, &ids, &alive, &now, &state, &successor) ||
        set_alive(path, alive) < 0)
        return -1;
    path->start_s = start_s;
    path->end_s = end_s;
    path->start_ns = to_ns(start_s);
    path->end_ns = to_ns(end_s);
    path->ids = (Ids *)ids;
    path->now = now == path->state->system_time ? NULL : now;
    return 0;
}

/* Do the test and the stores of _supersede(), between which no other code runs. Return 1, 0 if old is not current, or
   -1 for an error. What was current is left in *before, to be released when all is stored. */
static int
compare_and_set(FastPath *path, PyObject *old, PyObject *new, long long *mark, long long mark_ms, PyObject **before)
{
    Ids *emptied = path->ids;
    if (path->published != old)
        return 0;
    if (mark != NULL && *mark < mark_ms)
        *mark = mark_ms;
    if (set_block(path, new) < 0)
        return -1;
    *before = path->published;
    path->published = Py_NewRef(new);
    if (emptied != NULL && emptied != path->ids)
        STORE(emptied->next, emptied->stop);
    return 1;
}

static PyObject *
path_supersede(PyObject *self, PyObject *args)
{
    PyObject *old, *new, *marks = Py_None, *before = NULL;
    Py_ssize_t place = 0;
    long long mark_ms = 0, *mark = NULL;
    Py_buffer view = {0};
    int replaced;
    if (!PyArg_ParseTuple(args, "OO!|OnL:_supersede", &old, &PyTuple_Type, &new, &marks, &place, &mark_ms))
        return NULL;
    if (marks != Py_None) {
        if (PyObject_GetBuffer(marks, &view, PyBUF_CONTIG) < 0) {
            if (!PyErr_ExceptionMatches(PyExc_ValueError))
                return NULL;
            /* a forked child released its parent's marks */
            PyErr_Clear();
            Py_RETURN_FALSE;
        }
        if (place < 0 || place >= view.len / (Py_ssize_t)sizeof(long long)) {
            PyBuffer_Release(&view);
            PyErr_SetString(PyExc_IndexError, "no such mark");
            return NULL;
        }
        mark = (long long *)view.buf + place;
    }
    Py_BEGIN_CRITICAL_SECTION(self);
    replaced = compare_and_set((FastPath *)self, old == Py_None ? NULL : old, new, mark, mark_ms, &before);
    Py_END_CRITICAL_SECTION();
    if (marks != Py_None)
        PyBuffer_Release(&view);
    Py_XDECREF(before);
    return replaced < 0 ? NULL : PyBool_FromLong(replaced);
}

/* As is_current(), with a test clock. */
static int
is_current_by(FastPath *path, PyObject *clock)
{
    /* the call may drop the block that keeps the clock */
    PyObject *now = Py_NewRef(clock), *result = PyObject_CallNoArgs(now);
    double now_s;
    Py_DECREF(now);
    if (result == NULL)
        return -1;
    now_s = PyFloat_AsDouble(result);
    Py_DECREF(result);
    if (PyErr_Occurred())
        return -1;
    /* read after the call, in which anything may have happened */
    return path->start_s <= now_s && now_s < path->end_s && *path->alive;
}

/* Return 1 if the clock is within the window and this is no forked child that was not reset yet; else 0; -1 for an
   error. */
static inline int
is_current(FastPath *path)
{
    struct timespec time;
    long long now_ns;
    if (path->now != NULL)
        return is_current_by(path, path->now);
    clock_gettime(CLOCK_REALTIME, &time);
    now_ns = time.tv_sec * 1000000000LL + time.tv_nsec;
    return path->start_ns <= now_ns && now_ns < path->end_ns && *path->alive;
}

/* Take up to count ids of the current block, one step apart; return how many, or -1 for an error. */
static inline Py_ALWAYS_INLINE Py_ssize_t
take_current(FastPath *path, Py_ssize_t count, long long *first, long long *step)
{
    Py_ssize_t taken;
    Py_BEGIN_CRITICAL_SECTION(path);
    taken = is_current(path);
    if (taken > 0) {
        *step = path->ids->step;
        taken = take(path->ids, count, first);
    }
    Py_END_CRITICAL_SECTION();
    return taken;
}

static PyObject *
path_next_id(PyObject *self, PyObject *unused)
{
    long long id, step;
    Py_ssize_t taken = take_current((FastPath *)self, 1, &id, &step);
    (void)unused;
    if (taken > 0)
        return PyLong_FromLongLong(id);
    return taken < 0 ? NULL : PyObject_CallMethodObjArgs(self, ((FastPath *)self)->state->next_slow_name, NULL);
}

static PyObject *
path_iternext(PyObject *self)
{
    return path_next_id(self, NULL);
}

static PyObject *
path_id_now(PyObject *self, PyObject *unused)
{
    long long id, step;
    Py_ssize_t taken = take_current((FastPath *)self, 1, &id, &step);
    (void)unused;
    return taken < 0 ? NULL : PyLong_FromLongLong(taken ? id : 0);
}

static PyObject *
path_take_now(PyObject *self, PyObject *argument)
{
    long long first = 0, step = 0;
    Py_ssize_t i, taken, count = PyLong_AsSsize_t(argument);
    PyObject *list;
    if (count == -1 && PyErr_Occurred())
        return NULL;
    taken = take_current((FastPath *)self, count, &first, &step);
    if (taken < 0)
        return NULL;
    list = PyList_New(taken);
    if (list == NULL)
        return NULL;
    for (i = 0; i < taken; i++) {
        PyObject *id = PyLong_FromLongLong(first + i * step);
        if (id == NULL || PyList_SetItem(list, i, id) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *
path_fill_now(PyObject *self, PyObject *argument)
{
    long long first = 0, step = 0;
    Py_ssize_t i, taken;
    Py_buffer view;
    char *place;
    if (PyObject_GetBuffer(argument, &view, PyBUF_CONTIG) < 0)
        return NULL;
    taken = take_current((FastPath *)self, view.len / 8, &first, &step);
    place = view.buf;
    for (i = 0; i < taken; i++) {
        long long id = first + i * step;
        memcpy(place + i * 8, &id, 8);
    }
    PyBuffer_Release(&view);
    return taken < 0 ? NULL : PyLong_FromSsize_t(taken);
}

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
    /* a window that never opens */
    path->start_ns = 1;
    path->start_s = 1.0;
    path->alive = &NO;
    return (PyObject *)path;
}

static int
path_traverse(PyObject *self, visitproc visit, void *arg)
{
    FastPath *path = (FastPath *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(path->published);
    Py_VISIT(path->alive_view.obj);
    return 0;
}

static int
path_clear(PyObject *self)
{
    FastPath *path = (FastPath *)self;
    /* never current from here on: whatever runs while the rest is released finds no ids */
    path->start_ns = 1;
    path->end_ns = 0;
    path->start_s = 1.0;
    path->end_s = 0.0;
    path->alive = &NO;
    PyBuffer_Release(&path->alive_view);
    path->ids = NULL;
    path->now = NULL;
    Py_CLEAR(path->published);
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
    "next_id($self, /)\n--\n\n"
    "Make one id. Thread-safe, and safe in signal handlers and finalizers.\n\n"
    "Returns:\n"
    "    An int, 0 < id < 2**63: greater than every id that this generator made before, unless another\n"
    "    namespace or worker id came into use since: the clock went back, or the lease was lost.\n\n"
    "Raises:\n"
    "    LeaseExpired: the reservation ended while Redis did not reply.\n"
    "    LeaseLost: the lease was lost, and no other worker id could be claimed.\n"
    "    PoolExhausted, StoreUnavailable, LayoutMismatch: no worker id could be claimed.\n"
    "    ClockMovedBack, ClockSkewed, LayoutError: the clock shows a time that cannot be used.\n"
    "    GeneratorClosed, GeneratorSuspended: after close(), or suspend().\n\n"
    "Blocks:\n"
    "    at the first call, for the claim, as claim(); when the sequence of a tick is exhausted, until the\n"
    "    next tick; after the clock went back, for clock_tolerance_ms at most, or max_wait_ms if\n"
    "    clock_policy is \"wait\"; when the reservation ended, for one round trip to Redis.");

static PyMethodDef path_methods[] = {
    {"next_id", path_next_id, METH_NOARGS, next_id_doc},
    {"_id_now", path_id_now, METH_NOARGS, "Take an id of the current block; 0 if it has none."},
    {"_take_now", path_take_now, METH_O, "Take up to count ids of the current block; return a list."},
    {"_fill_now", path_fill_now, METH_O, "Write ids of the current block into a buffer of int64; return how many."},
    {"_supersede", path_supersede, METH_VARARGS,
     "Replace old by new as the current Published, and exhaust the ids of old; False if old is not current."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef path_getset[] = {
    {"_published", path_get_published, NULL, "The current Published.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot path_slots[] = {
    {Py_tp_doc, "Take ids of the current block."},
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
    "snowredis.runtime._fastpath.FastPath",
    sizeof(FastPath),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    path_slots,
};

/* --- the module ---------------------------------------------------------------------------------------- */

static int
module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
    PyObject *time = PyImport_ImportModule("time");
    if (time == NULL)
        return -1;
    state->system_time = PyObject_GetAttrString(time, "time");
    Py_DECREF(time);
    state->next_slow_name = PyUnicode_InternFromString("_next_slow");
    state->ids_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &ids_spec, NULL);
    state->fast_path_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &fast_path_spec, NULL);
    if (state->system_time == NULL || state->next_slow_name == NULL || state->ids_type == NULL ||
        state->fast_path_type == NULL)
        return -1;
    if (PyModule_AddObjectRef(module, "Ids", (PyObject *)state->ids_type) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "FastPath", (PyObject *)state->fast_path_type);
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->ids_type);
    Py_VISIT(state->fast_path_type);
    Py_VISIT(state->system_time);
    return 0;
}

static int
module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->ids_type);
    Py_CLEAR(state->fast_path_type);
    Py_CLEAR(state->system_time);
    Py_CLEAR(state->next_slow_name);
    return 0;
}

static void
module_free(void *module)
{
    module_clear(module);
}

/* Built for the ABI of 3.11, whose headers do not have these names; Python knows them since 3.12. */
#define SLOT_MULTIPLE_INTERPRETERS 3
#define PER_INTERPRETER_GIL ((void *)2)

static PyModuleDef_Slot module_slots[] = {
    /* from 3.12 on, see PyInit__fastpath() */
    {SLOT_MULTIPLE_INTERPRETERS, PER_INTERPRETER_GIL},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "snowredis.runtime._fastpath",
    .m_doc = "The fast path of next_id(), in C. See fast_path.py.",
    .m_size = sizeof(State),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC
PyInit__fastpath(void)
{
    if (Py_Version < 0x030C0000)
        module_def.m_slots = module_slots + 1;
    return PyModuleDef_Init(&module_def);
}
