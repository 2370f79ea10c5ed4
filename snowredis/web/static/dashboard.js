// Entry point of the dashboard: connects the feed and the URL with everything that draws.
import { addPart, drawAll, requestDraw, startDrawing } from "./draw.js";
import { $, element, setHidden, setText } from "./dom.js";
import { drawDrawer, showWorker, startDrawer } from "./drawer.js";
import { drawEvents, resetEvents, startEvents } from "./events.js";
import { drawLink, Feed, poolNames } from "./feed.js";
import { drawFigures, drawPool } from "./figures.js";
import { drawGraves, startGraves } from "./graves.js";
import { drawGrid, resetGrid, startGrid } from "./grid.js";
import { drawHistory, resetHistory, startHistory } from "./history.js";
import { drawAnswer, showId, startLookup } from "./lookup.js";
import { currentRoute, goTo, onRoute } from "./route.js";
import { clearSelection, isFiltered, selectedItems, startSelection } from "./selection.js";
import { state } from "./state.js";
import { drawStatus, startStatus } from "./status.js";
import { drawTable, resetTable, startTable } from "./table.js";
import { startTimes } from "./times.js";

const feed = new Feed(requestDraw);
let names = [];

function drawWorkers() {
  if (!state.pool) return;
  const items = selectedItems();
  drawGrid(items);
  drawTable(items);
  setHidden($("empty"), items.length > 0);
  setHidden($("clear"), !isFiltered());
  setText($("empty"), isFiltered() ? "No worker matches." : "No worker is alive. A process appears here when it makes its first id in this pool.");
}

function openPool(name) {
  showWorker(null);
  resetGrid();
  resetTable();
  resetEvents();
  resetHistory();
  $("pool").value = name;
  feed.open(name);
}

function show(route) {
  const pool = names.includes(route.pool) ? route.pool : names[0];
  const unknown = route.pool !== null && route.pool !== pool;
  setHidden($("problem"), !unknown);
  if (unknown) setText($("problem"), `This service has no pool ${route.pool}. This is pool ${pool}.`);
  if (pool !== feed.pool) openPool(pool);
  showWorker(unknown ? null : route.worker);
  if (route.id !== null && !unknown) showId(pool, route.id);
  requestDraw();
}

async function start() {
  names = await poolNames();
  $("pool").replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  onRoute(show);
  show(currentRoute());
}

$("pool").addEventListener("change", () => goTo({ pool: $("pool").value }));
$("clear").addEventListener("click", clearSelection);
setHidden($("loading"), true);
startStatus();
startTimes(() => { drawAnswer(); drawAll(); });
startHistory();
startGraves();
startSelection();
startGrid();
startTable();
startEvents();
startDrawer();
startLookup(() => feed.pool);
// the verdict is drawn for the title of the tab, too
addPart(null, drawStatus);
addPart(null, drawLink);
addPart(null, drawGraves);
addPart($("figures"), drawFigures);
addPart($("chart"), drawHistory);
addPart($("workers"), drawWorkers);
addPart($("events-card"), drawEvents);
addPart($("state"), drawPool);
addPart(null, drawDrawer);
startDrawing();
start();
