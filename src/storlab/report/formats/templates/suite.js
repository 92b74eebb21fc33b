// Filters results by what is typed; without this, the page has them all the same.
const field = document.getElementById("filter");
field.hidden = false;
field.addEventListener("input", () => {
  const wanted = field.value.trim().toLowerCase();
  for (const group of document.querySelectorAll("details.group")) {
    let shown = 0;
    for (const row of group.querySelectorAll("tbody tr")) {
      const fits = row.dataset.text.includes(wanted);
      row.classList.toggle("off", !fits);
      shown += fits ? 1 : 0;
    }
    group.classList.toggle("off", shown === 0);
    if (wanted) group.open = true;
  }
});
