/* The numbers of the current segment, in C: path.py's SegmentPath.
 *
 * It does what path.py does in Python; generator.py, which decides which segment comes next and publishes it, is the same
 * for both. Nothing here waits, decides or reads a clock.
 *
 * The state is one word: how many numbers this generator has used up so far, the unused ones of replaced segments
 * included. It only ever grows, so whoever replaces it by the next value, and only if it is still the one that was read,
 * knows that the segment is still the one that was read, too. Under the GIL no other code runs between two lines. On
 * free-threaded builds numbers are taken by compare-exchange; segments change in a critical section.
 */

#include "../runtime/_word.h"

#include <structmember.h>

typedef struct {
    PyObject_HEAD
    /* what next_id() reads comes first: the word, and where it ends in this segment */
    long long word, limit;
    /* a number is base + word * stride, modulo 2**64 */
    unsigned long long base, stride;
    /* the byte that is 0 in a forked child whose copy was not reset yet */
    const volatile unsigned char *alive;
    /* about how many numbers were taken before this segment, and the word at its beginning */
    long long taken, start;
    PyObject *range;
    Py_buffer alive_view;
    PyObject *next_slow_name;
} SegmentPath;

/* Take up to count numbers. Return how many. */
static inline Py_ALWAYS_INLINE Py_ssize_t
take(SegmentPath *path, Py_ssize_t count, unsigned long long *first)
{
    for (;;) {
        long long word = LOAD(path->word), left = FIELD(path->limit) - word;
        if (word == SEALED || left <= 0 || count < 1 || !*FIELD(path->alive))
            return 0;
        if (left > count)
            left = count;
        *first = FIELD(path->base) + (unsigned long long)word * FIELD(path->stride);
        if (exchange(&path->word, word, word + left))
            return (Py_ssize_t)left;
    }
}

static PyObject *
path_next_id(PyObject *self, PyObject *unused)
{
    SegmentPath *path = (SegmentPath *)self;
    unsigned long long number;
    (void)unused;
    if (take(path, 1, &number) > 0)
        return PyLong_FromLongLong((long long)number);
    return PyObject_CallMethodObjArgs(self, path->next_slow_name, NULL);
}

static PyObject *
path_iternext(PyObject *self)
{
    return path_next_id(self, NULL);
}

static PyObject *
path_take_now(PyObject *self, PyObject *argument)
{
    SegmentPath *path = (SegmentPath *)self;
    unsigned long long first = 0, stride;
    Py_ssize_t taken, count = PyLong_AsSsize_t(argument);
    if (count == -1 && PyErr_Occurred())
        return NULL;
    taken = take(path, count, &first);
    /* the same in all segments of one generator */
    stride = FIELD(path->stride);
    return as_list(first, stride, taken);
}

static PyObject *
path_fill_now(PyObject *self, PyObject *argument)
{
    SegmentPath *path = (SegmentPath *)self;
    unsigned long long number = 0, stride;
    Py_ssize_t taken;
    Py_buffer view;
    if (PyObject_GetBuffer(argument, &view, PyBUF_CONTIG) < 0)
        return NULL;
    taken = take(path, view.len / 8, &number);
    stride = FIELD(path->stride);
    write_to(view.buf, number, stride, taken);
    PyBuffer_Release(&view);
    return PyLong_FromSsize_t(taken);
}

static PyObject *
path_get_position(PyObject *self, void *unused)
{
    SegmentPath *path = (SegmentPath *)self;
    PyObject *range;
    long long word, left, taken;
    (void)unused;
    Py_BEGIN_CRITICAL_SECTION(self);
    range = Py_NewRef(path->range);
    word = LOAD(path->word);
    left = path->limit - word;
    taken = path->taken + word - path->start;
    Py_END_CRITICAL_SECTION();
    return Py_BuildValue("(NLL)", range, left, taken);
}

/* Do the test and the stores of _supersede(), between which no other code runs. Return 1, 0 if old is not current, or -1
   for an error. What was current is left in *before and *view, to be released when all is stored. */
static int
compare_and_set(SegmentPath *path, PyObject *old, PyObject *new, unsigned long long first, unsigned long long stride,
                long long count, PyObject **before, Py_buffer *view)
{
    Py_buffer replaced = path->alive_view;
    long long word;
    if (path->range != old)
        return 0;
#ifdef Py_GIL_DISABLED
    word = __atomic_exchange_n(&path->word, SEALED, __ATOMIC_ACQ_REL);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#else
    word = path->word;
#endif
    path->taken += word - path->start;
    /* above every word of the old segment: no word comes twice */
    path->start = path->limit;
    SET_FIELD(path->stride, stride);
    SET_FIELD(path->base, first - (unsigned long long)path->start * stride);
    SET_FIELD(path->alive, view->len > 0 ? (const volatile unsigned char *)view->buf : &NO);
    path->alive_view = *view;
    *view = replaced;
    SET_FIELD(path->limit, path->start + count);
    *before = path->range;
    path->range = Py_NewRef(new);
    STORE(path->word, path->start);
    return 1;
}

static PyObject *
path_supersede(PyObject *self, PyObject *args)
{
    SegmentPath *path = (SegmentPath *)self;
    PyObject *old, *new, *alive, *segment, *before = NULL;
    unsigned long long first, stride;
    long long count;
    Py_buffer view;
    int replaced;
    if (!PyArg_ParseTuple(args, "OO!:_supersede", &old, &PyTuple_Type, &new) ||
        !PyArg_ParseTuple(new, "KKLOO;a NumberRange", &first, &stride, &count, &alive, &segment))
        return NULL;
    if (count < 0 || stride < 1) {
        PyErr_SetString(PyExc_ValueError, "not a NumberRange");
        return NULL;
    }
    if (PyObject_GetBuffer(alive, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_BEGIN_CRITICAL_SECTION(self);
    replaced = compare_and_set(path, old, new, first, stride, count, &before, &view);
    Py_END_CRITICAL_SECTION();
    PyBuffer_Release(&view);
    Py_XDECREF(before);
    return PyBool_FromLong(replaced);
}

/* --- the type ------------------------------------------------------------------------------------------ */

static PyObject *
path_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    SegmentPath *path = (SegmentPath *)alloc(type, 0);
    (void)args;
    (void)kwargs;
    if (path == NULL)
        return NULL;
    path->alive = &NO;
    path->stride = 1;
    path->range = Py_NewRef(Py_None);
    path->next_slow_name = PyUnicode_InternFromString("_next_slow");
    if (path->next_slow_name == NULL) {
        Py_DECREF(path);
        return NULL;
    }
    return (PyObject *)path;
}

static int
path_traverse(PyObject *self, visitproc visit, void *arg)
{
    SegmentPath *path = (SegmentPath *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(path->range);
    Py_VISIT(path->alive_view.obj);
    return 0;
}

static int
path_clear(PyObject *self)
{
    SegmentPath *path = (SegmentPath *)self;
    PyObject *before = path->range;
    /* from here on: whatever runs while the rest is released finds no numbers */
    path->limit = path->start = path->word;
    path->alive = &NO;
    path->range = Py_NewRef(Py_None);
    PyBuffer_Release(&path->alive_view);
    Py_XDECREF(before);
    return 0;
}

static void
path_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(self);
    path_clear(self);
    Py_DECREF(((SegmentPath *)self)->range);
    Py_XDECREF(((SegmentPath *)self)->next_slow_name);
    release(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(next_id_doc,
    "next_id($self, /)\n--\n\n"
    "Make one number. Thread-safe, and safe in signal handlers and finalizers.\n\n"
    "Returns:\n"
    "    An int, from the tag's start to its maximum, which no other call returns, here or elsewhere; of a cyclic\n"
    "    tag: not in the same cycle.\n\n"
    "Raises:\n"
    "    TagClosed: the tag is closed, and the segments that this process has are used up.\n"
    "    TagExhausted, TagLimited: there is no number, or not yet.\n"
    "    StoreUnavailable, TagMismatch: there is no segment left, and Redis hands out none.\n"
    "    GeneratorClosed: after close().\n\n"
    "Blocks:\n"
    "    at the first call, for a round trip to Redis; afterwards only if segments are used up faster than they are\n"
    "    fetched, or while Redis does not reply.");

static PyMethodDef path_methods[] = {
    {"next_id", path_next_id, METH_NOARGS, next_id_doc},
    {"_take_now", path_take_now, METH_O, "Take up to count numbers of the current range; return a list."},
    {"_fill_now", path_fill_now, METH_O, "Write numbers of the current range into a buffer of int64; return how many."},
    {"_supersede", path_supersede, METH_VARARGS,
     "Replace the current NumberRange by a new one; False if old is not current."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef path_getset[] = {
    {"_position", path_get_position, NULL, "The current NumberRange, how many numbers are left, and taken so far.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot path_slots[] = {
    {Py_tp_doc, "Take numbers of the current segment."},
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

static PyType_Spec path_spec = {
    "snowredis.numbers._segment.SegmentPath",
    sizeof(SegmentPath),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    path_slots,
};

/* --- the module ---------------------------------------------------------------------------------------- */

static int
module_exec(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &path_spec, NULL);
    int failed;
    if (type == NULL)
        return -1;
    failed = PyModule_AddObjectRef(module, "SegmentPath", type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot module_slots[] = MODULE_SLOTS(module_exec);

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "snowredis.numbers._segment",
    .m_doc = "The numbers of the current segment, in C. See path.py.",
    .m_size = 0,
};

PyMODINIT_FUNC
PyInit__segment(void)
{
    return init_module(&module_def, module_slots);
}
