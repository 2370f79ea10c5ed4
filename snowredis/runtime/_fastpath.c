/* The fast path of next_id(), in C: fast_path.py's FastPath and the ids of one block.
 *
 * What it does is what fast_path.py does in Python, line by line; id_allocator.py, which decides what comes next
 * and publishes it, is the same for both. Nothing here waits, and nothing is decided here.
 *
 * Under the GIL no other code runs between two lines, but where a clock of tests is called. On
 * free-threaded builds the window is read in a critical section, and ids are taken by compare-exchange,
 * so that a block that was just sealed gives nothing to a thread that has read it already.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

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

static PyTypeObject *IdsType, *FastPathType;
static PyObject *next_slow_name;

/* Take up to count ids; how many, and the first of them. */
static Py_ssize_t
take(Ids *ids, Py_ssize_t count, long long *first)
{
    long long next = LOAD(ids->next);
    for (;;) {
        long long left = next < ids->stop ? (ids->stop - next + ids->step - 1) / ids->step : 0;
        Py_ssize_t taken = left < count ? (Py_ssize_t)left : count;
        long long after = next + taken * ids->step;
        if (taken <= 0)
            return 0;
#ifdef Py_GIL_DISABLED
        if (!__atomic_compare_exchange_n(&ids->next, &next, after, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            continue;
#else
        ids->next = after;
#endif
        *first = next;
        return taken;
    }
}

/* The same for one, without a division. */
static inline int
take_one(Ids *ids, long long *first)
{
    long long next = LOAD(ids->next);
    for (;;) {
        if (next >= ids->stop)
            return 0;
#ifdef Py_GIL_DISABLED
        if (!__atomic_compare_exchange_n(&ids->next, &next, next + ids->step, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            continue;
#else
        ids->next = next + ids->step;
#endif
        *first = next;
        return 1;
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
    return take_one((Ids *)self, &id) ? PyLong_FromLongLong(id) : NULL;
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
    {"__length_hint__", ids_length_hint, METH_NOARGS, "How many are left."},
    {"__copy__", ids_copy, METH_NOARGS, "The same ids once more, as a clone of a machine has them."},
    {"exhaust", ids_exhaust, METH_NOARGS, "Nothing is left."},
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

/* --- the window in which a block is current ------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    /* a Published of fast_path.py, and what its block (start, end, ids, alive) says */
    PyObject *published;
    Ids *ids;
    double start_s, end_s;
    long long start_ns, end_ns;
    /* the byte that a forked child finds wiped, and what it belongs to; without a byte, what to ask */
    const volatile unsigned char *alive;
    PyObject *alive_owner;
    int alive_is_viewed;
    Py_buffer alive_view;
    /* the clock of tests; NULL for the system's */
    PyObject *now;
} FastPath;

static const unsigned char YES = 1, NO = 0;

static long long
to_ns(double seconds)
{
    return (long long)(seconds * 1e9);
}

static void
forget_alive(FastPath *window)
{
    PyObject *owner = window->alive_owner;
    window->alive = &NO;
    window->alive_owner = NULL;
    if (window->alive_is_viewed) {
        window->alive_is_viewed = 0;
        PyBuffer_Release(&window->alive_view);
    }
    Py_XDECREF(owner);
}

/* Find the byte behind alive, which is a ctypes object; anything else is asked whether it is true. */
static void
remember_alive(FastPath *window, PyObject *alive)
{
    if (window->alive_owner == alive)
        return;
    forget_alive(window);
    window->alive_owner = Py_NewRef(alive);
    if (alive == Py_True || alive == Py_False)
        window->alive = alive == Py_True ? &YES : &NO;
    else if (PyObject_GetBuffer(alive, &window->alive_view, PyBUF_SIMPLE) == 0) {
        window->alive_is_viewed = 1;
        window->alive = window->alive_view.len == 1 ? window->alive_view.buf : NULL;
    }
    else {
        PyErr_Clear();
        window->alive = NULL;
    }
}

/* Whether this is no forked child that nobody told; -1 for an error. */
static inline int
is_alive(FastPath *window)
{
    PyObject *owner;
    int alive;
    if (window->alive != NULL)
        return *window->alive;
    owner = Py_NewRef(window->alive_owner);
    alive = PyObject_IsTrue(owner);
    Py_DECREF(owner);
    return alive;
}

static PyObject *
window_get_published(PyObject *self, void *unused)
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

static int
set_block(FastPath *window, PyObject *block)
{
    PyObject *ids;
    double start_s, end_s;
    if (!PyTuple_Check(block) || PyTuple_Size(block) != 4) {
        PyErr_SetString(PyExc_TypeError, "a block is (start, end, ids, alive)");
        return -1;
    }
    start_s = PyFloat_AsDouble(PyTuple_GetItem(block, 0));
    end_s = PyFloat_AsDouble(PyTuple_GetItem(block, 1));
    ids = PyTuple_GetItem(block, 2);
    if (PyErr_Occurred())
        return -1;
    if (Py_TYPE(ids) != IdsType) {
        PyErr_SetString(PyExc_TypeError, "the ids of a block are Ids");
        return -1;
    }
    remember_alive(window, PyTuple_GetItem(block, 3));
    window->start_s = start_s;
    window->end_s = end_s;
    window->start_ns = to_ns(start_s);
    window->end_ns = to_ns(end_s);
    window->ids = (Ids *)ids;
    return 0;
}

/* The test and the stores of _supersede(), between which nothing comes in: 1, or 0 if old is not current; -1 for an error.
   What was current is left in *before, to be released when everything is in its place. */
static int
compare_and_set(FastPath *window, PyObject *old, PyObject *new, long long *mark, long long mark_ms, PyObject **before)
{
    Ids *emptied = window->ids;
    if (window->published != old)
        return 0;
    if (mark != NULL && *mark < mark_ms)
        *mark = mark_ms;
    if (set_block(window, PyTuple_GetItem(new, 0)) < 0)
        return -1;
    *before = window->published;
    window->published = Py_NewRef(new);
    if (emptied != NULL && emptied != window->ids)
        STORE(emptied->next, emptied->stop);
    return 1;
}

static PyObject *
window_supersede(PyObject *self, PyObject *args)
{
    PyObject *old, *new, *marks = Py_None, *before = NULL;
    Py_ssize_t place = 0;
    long long mark_ms = 0, *mark = NULL;
    Py_buffer view = {0};
    int replaced;
    if (!PyArg_ParseTuple(args, "OO|OnL:_supersede", &old, &new, &marks, &place, &mark_ms))
        return NULL;
    if (!PyTuple_Check(new) || PyTuple_Size(new) < 1) {
        PyErr_SetString(PyExc_TypeError, "what is published is (block, ...)");
        return NULL;
    }
    if (marks != Py_None) {
        if (PyObject_GetBuffer(marks, &view, PyBUF_CONTIG) < 0) {
            if (!PyErr_ExceptionMatches(PyExc_ValueError))
                return NULL;
            /* a forked child let go of its parent's marks */
            PyErr_Clear();
            Py_RETURN_FALSE;
        }
        if (place < 0 || place >= view.len / (Py_ssize_t)sizeof(long long)) {
            PyBuffer_Release(&view);
            PyErr_SetString(PyExc_IndexError, "there is no such mark");
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

/* 1 if the clock is within the window, and this is no child that nobody told; 0 if not; -1 for an error. */
static inline int
is_current(FastPath *window)
{
    if (window->now == NULL) {
        struct timespec time;
        long long now_ns;
        clock_gettime(CLOCK_REALTIME, &time);
        now_ns = time.tv_sec * 1000000000LL + time.tv_nsec;
        return window->start_ns <= now_ns && now_ns < window->end_ns ? is_alive(window) : 0;
    }
    else {
        PyObject *now = PyObject_CallNoArgs(window->now);
        double now_s;
        if (now == NULL)
            return -1;
        now_s = PyFloat_AsDouble(now);
        Py_DECREF(now);
        if (now_s == -1.0 && PyErr_Occurred())
            return -1;
        /* read after the call, in which anything may have happened */
        return window->start_s <= now_s && now_s < window->end_s ? is_alive(window) : 0;
    }
}

/* Take one id of the current block: whether there was one, or -1 for an error. */
static inline int
take_current_one(FastPath *window, long long *id)
{
    int taken;
    Py_BEGIN_CRITICAL_SECTION(window);
    taken = is_current(window);
    if (taken > 0)
        taken = take_one(window->ids, id);
    Py_END_CRITICAL_SECTION();
    return taken;
}

/* Take up to count ids of the current block, one step apart; how many, or -1 for an error. */
static Py_ssize_t
take_current(FastPath *window, Py_ssize_t count, long long *first, long long *step)
{
    Py_ssize_t taken;
    Py_BEGIN_CRITICAL_SECTION(window);
    taken = is_current(window);
    if (taken > 0) {
        *step = window->ids->step;
        taken = take(window->ids, count, first);
    }
    Py_END_CRITICAL_SECTION();
    return taken;
}

static PyObject *
window_next_id(PyObject *self, PyObject *unused)
{
    long long id;
    int taken = take_current_one((FastPath *)self, &id);
    (void)unused;
    if (taken > 0)
        return PyLong_FromLongLong(id);
    return taken < 0 ? NULL : PyObject_CallMethodObjArgs(self, next_slow_name, NULL);
}

static PyObject *
window_iternext(PyObject *self)
{
    return window_next_id(self, NULL);
}

static PyObject *
window_id_now(PyObject *self, PyObject *unused)
{
    long long id;
    int taken = take_current_one((FastPath *)self, &id);
    (void)unused;
    return taken < 0 ? NULL : PyLong_FromLongLong(taken ? id : 0);
}

static PyObject *
window_take_now(PyObject *self, PyObject *argument)
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
window_fill_now(PyObject *self, PyObject *argument)
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

static PyObject *
window_use_clock(PyObject *self, PyObject *now)
{
    FastPath *window = (FastPath *)self;
    PyObject *before = window->now;
    window->now = now == Py_None ? NULL : Py_NewRef(now);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyObject *
window_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    FastPath *window = (FastPath *)alloc(type, 0);
    (void)args;
    (void)kwargs;
    if (window == NULL)
        return NULL;
    /* a window that was never open */
    window->start_ns = 1;
    window->start_s = 1.0;
    window->alive = &NO;
    return (PyObject *)window;
}

static int
window_traverse(PyObject *self, visitproc visit, void *arg)
{
    FastPath *window = (FastPath *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(window->published);
    Py_VISIT(window->alive_owner);
    Py_VISIT(window->now);
    return 0;
}

static int
window_clear(PyObject *self)
{
    FastPath *window = (FastPath *)self;
    /* closed before what it shows is dropped: whatever runs then finds no ids */
    window->start_ns = 1;
    window->end_ns = 0;
    window->start_s = 1.0;
    window->end_s = 0.0;
    forget_alive(window);
    window->ids = NULL;
    Py_CLEAR(window->published);
    Py_CLEAR(window->now);
    return 0;
}

static void
window_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(self);
    window_clear(self);
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
    "    LeaseExpired: the reserved time ran out while Redis was away; LeaseLost: and the worker id too.\n"
    "    PoolExhausted, StoreUnavailable, LayoutMismatch: no worker id could be claimed.\n"
    "    ClockMovedBack, ClockSkewed: what the clock shows cannot be used.\n"
    "    GeneratorClosed: after close().\n\n"
    "Blocks:\n"
    "    at the first call, for the claim; at the layout's ceiling, to the next tick; on a clock that\n"
    "    went back, up to clock_tolerance_ms.");

static PyMethodDef window_methods[] = {
    {"next_id", window_next_id, METH_NOARGS, next_id_doc},
    {"_id_now", window_id_now, METH_NOARGS, "An id of the current block, or 0."},
    {"_take_now", window_take_now, METH_O, "A list of up to count ids of the current block."},
    {"_fill_now", window_fill_now, METH_O, "Write ids of the current block into a buffer; how many."},
    {"_supersede", window_supersede, METH_VARARGS,
     "Make new current in the place of old, and take away the ids that old has left; False if old is not current."},
    {"_use_clock", window_use_clock, METH_O, "What to ask for the time, in s; None for the system's clock."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef window_getset[] = {
    {"_published", window_get_published, NULL, "What is current.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot window_slots[] = {
    {Py_tp_doc, "The ids that are current, and when they are."},
    {Py_tp_new, window_new},
    {Py_tp_dealloc, window_dealloc},
    {Py_tp_traverse, window_traverse},
    {Py_tp_clear, window_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, window_iternext},
    {Py_tp_methods, window_methods},
    {Py_tp_getset, window_getset},
    {0, NULL},
};

static PyType_Spec fast_path_spec = {
    "snowredis.runtime._fastpath.FastPath",
    sizeof(FastPath),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    window_slots,
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    "snowredis.runtime._fastpath",
    "The fast path of next_id(), in C. See fast_path.py.",
    -1,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
};

PyMODINIT_FUNC
PyInit__fastpath(void)
{
    PyObject *module = PyModule_Create(&module_def);
    if (module == NULL)
        return NULL;
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    next_slow_name = PyUnicode_InternFromString("_next_slow");
    IdsType = (PyTypeObject *)PyType_FromSpec(&ids_spec);
    FastPathType = (PyTypeObject *)PyType_FromSpec(&fast_path_spec);
    if (next_slow_name == NULL || IdsType == NULL || FastPathType == NULL ||
        PyModule_AddObjectRef(module, "Ids", (PyObject *)IdsType) < 0 ||
        PyModule_AddObjectRef(module, "FastPath", (PyObject *)FastPathType) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
