/* The least that an id which contains the time can cost: functions that read the clock and make an int. See floor.py. */

#include <Python.h>
#include <time.h>

static PyObject *
now_int(PyObject *self, PyObject *unused)
{
    struct timespec time;
    (void)self;
    (void)unused;
    clock_gettime(CLOCK_REALTIME, &time);
    return PyLong_FromLongLong(time.tv_sec * 1000000000LL + time.tv_nsec);
}

static PyMethodDef methods[] = {
    {"now_int", now_int, METH_NOARGS, "Return the time, ns since 1970."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec clock_spec = {"floor.Clock", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

static int
module_exec(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&clock_spec);
    return type == NULL ? -1 : PyModule_AddObject(module, "Clock", type);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "floor",
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit_floor(void)
{
    return PyModuleDef_Init(&module_def);
}
